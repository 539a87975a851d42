//! Tests of the binary from outside: its output and its exit codes.

mod adapter_command;
mod adapter_convert;
mod adapters;
mod attention_lanes;
mod bad_input;
mod batch;
mod bench;
mod broken_models;
mod browser;
mod chat;
mod checkpoint;
mod compare;
mod confined;
mod conversation;
mod convert;
mod demo;
#[cfg(unix)]
mod deploy;
mod diffuse;
mod doctor;
#[cfg(unix)]
mod durability;
mod encoders;
mod environment;
mod examples;
mod exchange;
mod gemm_lora_lane;
mod generate;
mod gguf;
mod golden;
// The tests of redline-weights use all of it.
#[allow(dead_code)]
#[path = "../../../redline-weights/tests/it/gguf/writer.rs"]
mod gguf_writer;
mod guide_fields;
mod guides;
mod harness;
mod help;
// The tests of redline-hub use all of it.
#[allow(dead_code)]
#[path = "../../../redline-hub/tests/it/server.rs"]
mod hub_server;
mod jsonl;
mod judge;
mod judge_lines;
mod laboratory;
mod lanes;
mod load_lane;
// The tests of redline-client use all of it.
#[allow(dead_code)]
#[path = "../../../redline-client/tests/it/mock.rs"]
mod mock;
mod model;
mod network;
mod parity;
mod perplexity;
mod plans;
mod prefix_cache;
mod profile;
mod pull;
mod receipts;
mod report;
mod sampling;
mod sched_zipf_lane;
mod score;
mod score_lane;
mod score_rules;
mod seeds;
#[cfg(unix)]
mod serve;
mod shown;
mod signed;
mod synth;
mod text_answers;
mod tokenize;
mod tokenizer_lane;
mod usage;
mod values;
mod versus;
