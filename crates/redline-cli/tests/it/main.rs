//! The binary from outside: what it prints, and the code it leaves with.

mod bad_input;
mod bench;
mod broken_models;
mod checkpoint;
mod compare;
mod convert;
mod demo;
mod doctor;
mod environment;
mod generate;
mod harness;
mod help;
mod jsonl;
mod judge;
mod lanes;
mod model;
mod perplexity;
mod plans;
mod prefix_cache;
mod score;
mod score_lane;
mod score_rules;
mod synth;
mod tokenize;
mod usage;
mod versus;
