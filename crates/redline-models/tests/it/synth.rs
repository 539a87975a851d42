//! Synthetic shapes: every shape describes a model that its architecture accepts.

use redline_kernels::Format;
use redline_models::spec::Objective;
use redline_models::synth::{self, SHAPES};

use crate::reference::on_team;

#[test]
fn names_are_unique_and_found() {
    for (i, shape) in SHAPES.iter().enumerate() {
        assert_eq!(synth::find(shape.name).unwrap().vocab, shape.vocab);
        assert!(SHAPES[..i].iter().all(|s| s.name != shape.name));
    }
    let hint = synth::find("gpt5").unwrap_err().hint().unwrap().to_string();
    assert!(SHAPES.iter().all(|s| hint.contains(s.name)));
}

/// Parameters, a tied head counted once: those of published models as their authors or the hub give them, the others from
/// vocabulary x hidden (twice: heads are untied) + layers x (4 x hidden^2 + 3 x hidden x inner + 2 x hidden) + hidden.
const PARAMETERS: &[(&str, u64)] = &[
    ("small", 2 * 32000 * 768 + 12 * (4 * 768 * 768 + 3 * 768 * 2048 + 2 * 768) + 768),
    ("medium", 2 * 32000 * 1024 + 24 * (4 * 1024 * 1024 + 3 * 1024 * 2816 + 2 * 1024) + 1024),
    ("large", 2 * 32000 * 2048 + 16 * (4 * 2048 * 2048 + 3 * 2048 * 5632 + 2 * 2048) + 2048),
    ("gpt2", 124_439_808),
    ("gpt2-xl", 1_557_611_200),
    ("tinyllama-1.1b", 1_100_048_384),
    ("llama-3.2-1b", 1_235_814_400),
    ("llama-3.2-3b", 3_212_749_824),
    ("llama-3.1-8b", 8_030_261_248),
    ("mistral-7b", 7_241_732_096),
    ("qwen2.5-0.5b", 494_032_768),
    ("qwen2.5-1.5b", 1_543_714_304),
    ("qwen3-0.6b", 596_049_920),
    ("qwen3-4b", 4_022_468_096),
    ("qwen3.5-0.8b", 752_393_024),
    ("gemma-4-e2b", 4_621_490_979),
    // By layer: attention with a window or without, the dense part, the experts with their router, norms.
    (
        "gemma-4-26b-a4b",
        2816 * (262_144 + 1)
            + 25 * (2816 * 256 * (2 * 16 + 2 * 8) + 2 * 256)
            + 5 * (2816 * 512 * (2 * 16 + 2) + 2 * 512)
            + 30 * (3 * 2816 * 2112 + 128 * (3 * 2816 * 704 + 2816 + 1) + 8 * 2816 + 1),
    ),
    ("dream-0.5b", 494_032_768 + 151_936 * 896),
    ("dream-7b", 7_615_616_512),
    ("llada-8b", 8_015_581_184),
    ("qwen3-30b-a3b", 30_532_122_624),
    (
        "qwen3-moe-1b",
        32000 * 1024
            + 10 * (1024 * (1024 + 2 * 256)
                + 1024 * 1024
                + 128 * (3 * 1024 * 256 + 1024)
                + 2 * 1024
                + 2 * 64)
            + 1024,
    ),
    ("qwen1.5-moe-a2.7b", 14_315_784_192),
    ("mixtral-8x7b", 46_702_792_704),
    ("gpt-oss-20b", 20_914_757_184),
    ("gpt-oss-6b", 20_914_757_184 - 18 * 823186976),
    ("lfm2-350m", 354_483_968),
    ("lfm2-1.2b", 1_170_340_608),
    ("lfm2-8b-a1b", 8_339_930_560),
    ("granite-4-h-micro", 3_191_396_096),
    ("granite-4-h-tiny", 6_939_037_248),
    ("falcon-h1-0.5b", 521_411_104),
    // With the corrections of its routers, which are no parameters in the reference.
    ("nemotron-3-nano-30b-a3b", 31_577_937_344 + 23 * 128),
    // Without the pooler, which embeds nothing.
    ("bge-small", 33_360_000 - 384 * 385),
    ("bge-base", 109_482_240 - 768 * 769),
    ("deberta-v3-base", 183_831_552),
];

#[test]
fn every_shape_has_the_parameters_of_its_model() {
    let names: Vec<_> = SHAPES.iter().map(|s| s.name).collect();
    assert_eq!(names, PARAMETERS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (shape, &(name, want)) in SHAPES.iter().zip(PARAMETERS) {
        let spec = shape.spec().unwrap_or_else(|e| panic!("{name}: {e}"));
        let parameters: u64 = spec.tensors().iter().map(|t| t.shape.iter().product::<usize>() as u64).sum();
        assert_eq!((parameters, spec.vocab), (want, shape.vocab), "{name}");
        let masked = spec.objective.fills_masks();
        assert_eq!(masked, name.starts_with("dream") || name.starts_with("llada"), "{name}");
        assert_eq!(
            spec.objective == Objective::STATES,
            name.starts_with("bge") || name.starts_with("deberta"),
            "{name}"
        );
    }
}

#[test]
fn a_destination_with_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("keep"), "me").unwrap();
    for format in [Format::F32, Format::W8 { group: 128 }] {
        let shape = synth::find("gpt2").unwrap();
        let error = on_team(|exec| synth::write(exec, shape, dir.path(), format, 0, b"{}", &mut |_| Ok(())))
            .unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("keep")).unwrap(), "me");
}
