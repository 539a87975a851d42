//! Tests of the checks: small trees that violate each rule, and near misses that do not.

use super::CHECKS;
use super::tree::Tree;

/// The expected result of a check for a tree.
struct Example {
    check: &'static str,
    tree: &'static str,
    /// The violations in the order found; empty for a near miss.
    expect: &'static [&'static str],
}

/// Checks whose examples are generated, in the files of the checks.
const GENERATED: &[&str] = &["lines", "width", "bytes"];

const EXAMPLES: &[Example] = &[
    Example {
        check: "edges",
        tree: "//- crates/redline-kernels/Cargo.toml\n[dependencies]\nredline-simd.workspace = true\nredline-system.workspace = true\nlibc = \"0.2\"
redline-engine.workspace = true\n[dev-dependencies]\nredline-lab.workspace = true\n",
        expect: &[
            "crates/redline-kernels/Cargo.toml:5: `redline-kernels` may not import `redline-engine`; it may import redline-simd, redline-system",
            "crates/redline-kernels/Cargo.toml:7: the tests of `redline-kernels` may not import `redline-lab`; it may import redline-simd, redline-system",
        ],
    },
    Example {
        check: "edges",
        tree: "//- crates/redline-attic/Cargo.toml\n[package]\n",
        expect: &[
            "crates/redline-attic/Cargo.toml: `redline-attic` has no place in EDGES of xtask/src/tidy/edges.rs",
        ],
    },
    Example {
        check: "edges",
        tree: "//- crates/redline-models/Cargo.toml\n[dependencies]\nredline-kernels.workspace = true
redline-system.workspace = true\nredline-settings.workspace = true\n[dev-dependencies]\nredline-weights.workspace = true\n",
        expect: &[
            "crates/redline-models/Cargo.toml: `redline-models` does not use `redline-weights`: take the edge out of EDGES",
        ],
    },
    Example {
        check: "edges",
        tree: "//- crates/redline-models/Cargo.toml\n[dependencies]\nredline-kernels.workspace = true
redline-system.workspace = true\nredline-settings.workspace = true\nredline-weights.workspace = true\n",
        expect: &[],
    },
    Example {
        check: "serde",
        tree: "//- crates/redline-engine/Cargo.toml\n[dependencies]\nserde.workspace = true
//- crates/redline-engine/src/lib.rs\n//! x\n#[derive(Debug, serde::Serialize)]\nstruct A;
//- crates/redline-models/Cargo.toml\n[dev-dependencies]\nserde_json.workspace = true
//- crates/redline-weights/Cargo.toml\n[dependencies]\nserde.workspace = true\n",
        expect: &[
            "crates/redline-engine/Cargo.toml:2: `redline-engine` may not use `serde`: JSON types live above it",
            "crates/redline-engine/src/lib.rs:2: `serde` in the engine: JSON types live in redline-api",
            "crates/redline-engine/src/lib.rs:2: `Serialize` in the engine: JSON types live in redline-api",
        ],
    },
    Example {
        check: "instructions",
        tree: "//- crates/redline-kernels/src/a.rs\nuse core::{arch::x86_64::*, mem};\n// core::arch\nlet a = \"std::arch\";
//- crates/redline-models/src/b.rs\nif is_x86_feature_detected!(\"avx2\") {}
//- crates/redline-simd/src/c.rs\nuse core::arch::x86_64::*;\n",
        expect: &[
            "crates/redline-kernels/src/a.rs:1: `core::arch` outside redline-simd",
            "crates/redline-models/src/b.rs:1: `is_x86_feature_detected` outside redline-simd",
        ],
    },
    Example {
        check: "unsafe",
        tree: "//- crates/redline-models/src/lib.rs\n//! unsafe\nfn f() { unsafe { g() } }
//- crates/redline-kernels/src/lib.rs\nunsafe fn h() {}
//- crates/redline-engine/src/lib.rs\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe\";\n",
        expect: &[
            "crates/redline-models/src/lib.rs:2: `unsafe` outside redline-simd, redline-system and redline-kernels",
            "crates/redline-models/src/lib.rs: `#![forbid(unsafe_code)]` is missing",
        ],
    },
    Example {
        check: "circles",
        tree: "//- crates/redline-weights/src/lib.rs\nmod a;\nmod b;\nmod c;\npub use a::A;
//- crates/redline-weights/src/a.rs\nuse crate::b::B;
//- crates/redline-weights/src/b/mod.rs\nmod d;\nuse super::c::C;
//- crates/redline-weights/src/b/d.rs\nuse super::B;
//- crates/redline-weights/src/c.rs\nfn f() -> crate::A { g() }\n#[cfg(test)]\nmod tests {\nuse crate::b::B;\n}
//- crates/redline-weights/src/e.rs\nuse crate::{a::A, c::C};\n
//- crates/redline-engine/src/lib.rs\nmod a;\nmod b;\nmod c;
//- crates/redline-engine/src/a/mod.rs\nmod one;\nmod two;
//- crates/redline-engine/src/a/one.rs\nuse crate::b::B;
//- crates/redline-engine/src/a/two.rs\npub struct A;
//- crates/redline-engine/src/b.rs\nuse crate::a::two::A;\nuse crate::c::C;
//- crates/redline-engine/src/c.rs\npub struct C;
",
        expect: &[
            "crates/redline-engine/src/: these folders import each other in a circle: a, b",
            "crates/redline-weights/src/: these files import each other in a circle: a, b, c",
        ],
    },
    Example {
        check: "type-names",
        tree: "//- crates/redline-engine/src/a.rs\npub struct Run;\npub(crate) struct Own;\npub struct $name {
//- crates/redline-lab/src/a.rs\n/// Runs.\npub enum Run {}\nstruct Own;\npub struct $name {
//- crates/redline-lab/src/b.rs\npub struct Run;\n",
        expect: &[
            "crates/redline-lab/src/a.rs:2: `Run` is also a type of crates/redline-engine/src/a.rs",
            "crates/redline-lab/src/b.rs:1: `Run` is also a type of crates/redline-engine/src/a.rs",
        ],
    },
    Example {
        check: "engine",
        tree: "//- crates/redline-engine/src/a.rs\nuse std::{fs, path::Path};\nfs::read(path);\nstd::net::TcpStream;
//- crates/redline-weights/src/a.rs\nuse std::fs::File;\n",
        expect: &[
            "crates/redline-engine/src/a.rs:1: `std::fs` in the engine: files are reached through redline-weights",
            "crates/redline-engine/src/a.rs:2: `fs::read` in the engine: files are reached through redline-weights",
            "crates/redline-engine/src/a.rs:3: `std::net` in the engine",
        ],
    },
    Example {
        check: "writes",
        tree: "//- crates/redline-lab/src/run.rs\nuse std::fs::{self, File};\nfs::read(p);\nfs::rename(a, b);\nFile::create_new(p);
#[cfg(test)]\nmod tests { fn f() { fs::write(p, b); } }
//- crates/redline-lab/tests/it/main.rs\nfs::write(p, b);
//- crates/redline-weights/src/disk.rs\nfs::rename(a, b);\n",
        expect: &[
            "crates/redline-lab/src/run.rs:3: `fs::rename` outside redline-weights/src/disk.rs: write through a `Disk`",
            "crates/redline-lab/src/run.rs:4: `File::create_new` outside redline-weights/src/disk.rs: write through a `Disk`",
        ],
    },
    Example {
        check: "front-ends",
        tree: "//- crates/redline-engine/src/error.rs\n//! Of `--memory`.\nconst A: &str = \"give more `--memory`\";
const B: &str = \"leave out\\n--format\";\nconst C: &str = \"set REDLINE_FORMAT\";\nconst D: &str = \"take `redline diffuse`\";\n",
        expect: &[
            "crates/redline-engine/src/error.rs:2: the words of the command line in a library: name a `Setting` or a `Command` of redline-settings",
            "crates/redline-engine/src/error.rs:4: the words of the command line in a library: name a `Setting` or a `Command` of redline-settings",
            "crates/redline-engine/src/error.rs:5: the words of the command line in a library: name a `Setting` or a `Command` of redline-settings",
        ],
    },
    Example {
        check: "front-ends",
        tree: "//- crates/redline-engine/src/error.rs\n//! x\nconst A: &str = \"a -- b, i--, a--b\";\n// `--memory`
#[cfg(test)]\nmod tests {\n    const A: &str = \"`--memory`\";\n}\n
//- crates/redline-cli/src/main.rs\n//! x\nconst A: &str = \"`--memory`\";\n",
        expect: &[],
    },
    Example {
        check: "network",
        tree: "//- crates/redline-cli/tests/it/main.rs\nuse std::net::TcpStream;
//- crates/redline-server/src/lib.rs\nuse std::net::TcpListener;
//- crates/redline-hub/tests/it/server.rs\nuse std::net::TcpListener;
//- crates/redline-lab/src/a.rs\nuse std::fs;\n// std::net\n",
        expect: &["crates/redline-cli/tests/it/main.rs:1: `std::net` outside redline-server, redline-client and redline-hub"],
    },
    Example {
        check: "connections",
        tree: "//- crates/redline-cli/Cargo.toml\n[dependencies]\nclap.workspace = true\n[dev-dependencies]\nureq = \"3\"
//- crates/redline-server/Cargo.toml\n[dependencies]\ntokio.workspace = true
//- crates/redline-hub/Cargo.toml\n[dependencies]\nureq.workspace = true\n",
        expect: &[
            "crates/redline-cli/Cargo.toml:4: `redline-cli` may not use `ureq`: only a server and redline-hub open connections",
        ],
    },
    Example {
        check: "same-bits",
        tree: "//- crates/redline-engine/src/sampler.rs\nlet p = x.exp() / y.sqrt();\nlibm::expf(x);\ns.exp(x);
x.powi(2);\n#[cfg(test)]\nmod tests { fn f() { x.ln(); } }\n",
        expect: &[
            "crates/redline-engine/src/sampler.rs:1: `exp` differs between platforms: use libm or the kernels' own",
            "crates/redline-engine/src/sampler.rs:4: `powi` differs between platforms: use libm or the kernels' own",
        ],
    },
    Example {
        check: "architectures",
        tree: "//- crates/redline-models/src/arch/llama.rs\n//! Llama.\nlet w = Format::Bf16;\nlet batch_size = 1;
//- crates/redline-models/src/block/linear.rs\nFormat::Bf16;\n",
        expect: &[
            "crates/redline-models/src/arch/llama.rs:2: `bf16` names a weight format: that lives inside the blocks",
            "crates/redline-models/src/arch/llama.rs:3: `batch` names a batch mode: that lives inside the blocks",
        ],
    },
    Example {
        check: "forward",
        tree: "//- crates/redline-models/src/a.rs\nimpl A {\n fn forward(&self) -> Result<Act> {\n let a = vec![1];
 rows.iter().collect::<Vec<_>>()\n }\n fn load() -> Result<A> { Vec::new() }\n fn forward_all(&self) -> Act { self.x }\n}\n",
        expect: &[
            "crates/redline-models/src/a.rs:2: `forward` returns a Result: fail at load",
            "crates/redline-models/src/a.rs:3: `vec!` allocates in `forward`: lay memory out in the plan",
            "crates/redline-models/src/a.rs:4: `.collect::` allocates in `forward`: lay memory out in the plan",
        ],
    },
    Example {
        check: "lists",
        tree: "//- crates/redline-models/src/arch/mod.rs\npub mod gpt2;\npub(crate) mod llama;\n// mod qwen;
pub const ALL: [Arch; 2] = [gpt2::ARCH, mistral::ARCH];
//- crates/redline-models/src/arch/gpt2.rs
//- crates/redline-models/src/arch/qwen.rs\n",
        expect: &[
            "crates/redline-models/src/arch/mod.rs: `mod qwen;` is missing, but `qwen.rs` is there",
            "crates/redline-models/src/arch/mod.rs: `mod llama;` has no file beside it",
            "crates/redline-models/src/arch/mod.rs: `ALL` does not name `llama`",
        ],
    },
    Example {
        check: "lists",
        tree: "//- crates/redline-lab/src/lanes/mod.rs\nmod generate;
//- crates/redline-lab/src/lanes/generate.rs\n",
        expect: &["crates/redline-lab/src/lanes/mod.rs: has no list `const ALL`"],
    },
    Example {
        check: "lists",
        tree: "//- crates/redline-simd/src/isa/mod.rs\npub mod avx512;
//- crates/redline-simd/src/isa/avx512.rs
//- crates/redline-simd/src/detect.rs\npub const ALL: &[Tier] = &[Tier::Avx512];
//- crates/redline-engine/src/mode/mod.rs\npub mod score;
//- crates/redline-engine/src/mode/score/mod.rs\n",
        expect: &[],
    },
    Example {
        check: "module-docs",
        tree: "//- crates/a/src/x.rs\n\n//! Late.\n//- crates/a/src/y.rs\n//! Y.\n//- crates/a/src/z.rs\n/// Z.\n",
        expect: &[
            "crates/a/src/x.rs:1: does not begin with a `//!` line that says what the file is",
            "crates/a/src/z.rs:1: does not begin with a `//!` line that says what the file is",
        ],
    },
    Example {
        check: "feature-cfgs",
        tree: "//- a.rs\n#[cfg(all(unix, feature = \"x\"))]\n#[target_feature(enable = \"avx2\")]\nlet feature = 1;\n",
        expect: &["a.rs:1: one of 1 `cfg(feature)`, limit 0"],
    },
    Example {
        check: "language",
        tree: "//- a/src/a.rs\n/// See the module.\nstruct A; // for whoever asks\nconst B: &str = \"nobody, somebody\";\n
//- CONTRIBUTING.md\nSomebody asks.\n//- docs/a.md\nWhoever.\n//- a.py\nraise Error('somebody')\n",
        expect: &[
            "a/src/a.rs:3: `somebody` in prose: say the caller, the user, another process",
            "a/src/a.rs:1: `see the module.` in prose: say what the item is",
            "a/src/a.rs:2: `whoever` in prose: say the caller, the user, another process",
            "CONTRIBUTING.md:1: `somebody` in prose: say the caller, the user, another process",
            "a.py:1: `somebody` in prose: say the caller, the user, another process",
            "docs/a.md:1: `whoever` in prose: say the caller, the user, another process",
        ],
    },
    Example {
        check: "language",
        tree: "//- a/src/a.rs\n/// The module.\nfn somebody() {}\n#[cfg(test)]\nmod tests {\n    const A: &str = \"somebody\";\n}\n
//- a/tests/it/main.rs\n\"somebody\"\n//- CHANGELOG.md\nSomebody.\n",
        expect: &[],
    },
    Example {
        check: "unfinished",
        tree: "//- a.rs\nfn f() {}\n#[ignore = \"slow\"]\n// FIXME later\nlet hack = \"HACK\"; // SHACK\n",
        expect: &["a.rs:2: a test that does not run", "a.rs:3: `FIXME` in a comment: do it, or write an issue"],
    },
    Example {
        check: "names",
        tree: "//- crates/a/src/utils/x.rs\n//- crates/a/src/helpers.rs\n//- common/x.txt\n//- docs/misc.md\n",
        expect: &[
            "common/x.txt: `common` says nothing: name what is inside",
            "crates/a/src/helpers.rs: `helpers` says nothing: name what is inside",
            "crates/a/src/utils/x.rs: `utils` says nothing: name what is inside",
        ],
    },
    Example {
        check: "documents",
        tree: "//- ARCHITECTURE.md\nredline-a\n//- README.md\ncargo xtask test\n//- CHANGELOG.md
//- crates/redline-a/src/lib.rs\n//- crates/redline-b/src/lib.rs\n",
        expect: &[
            "ARCHITECTURE.md: does not name `redline-b`",
            "CONTRIBUTING.md: is missing",
            "README.md: does not name `cargo run --release -- demo`",
        ],
    },
    Example {
        check: "documents",
        tree: "//- ARCHITECTURE.md\na `a/src/gone.rs`, `src/there.rs`, `there.rs`, `here.rs`, `op/<operation>.rs`, `of/<kind>.rs`
//- CHANGELOG.md\n`gone.rs` was there once\n//- CONTRIBUTING.md\n| `crates/a/src/op/x.rs` | `op/mod.rs` (`mod`) |
| `crates/a/src/format/x.rs` | `cargo run` |\n`tools/new.py`
//- README.md\ncargo run --release -- demo cargo xtask test\n//- docs/a.md\n`../src/there.rs` `../install.sh`\n//- docs/seeds.md\n`gone.rs`\n//- src/there.rs\n//- crates/a/src/op/mod.rs\n",
        expect: &[
            "ARCHITECTURE.md:1: names `a/src/gone.rs`, which does not exist",
            "ARCHITECTURE.md:1: names `here.rs`, which does not exist",
            "ARCHITECTURE.md:1: names `of/<kind>.rs`, which does not exist",
            "CONTRIBUTING.md:2: names `crates/a/src/format/x.rs`, which does not exist",
            "CONTRIBUTING.md:3: names `tools/new.py`, which does not exist",
            "docs/a.md:1: names `../install.sh`, which does not exist",
        ],
    },
    Example {
        check: "test-binaries",
        tree: "//- crates/a/tests/slow.rs\n//- crates/a/tests/it/x.rs\n//- crates/b/tests/it/main.rs
//- crates/b/Cargo.toml\n[lib]\nname = \"b\"\ntest = false\n//- crates/b/src/lib.rs\n//! #[test]\n#[test]\nfn b() {}
//- crates/a/Cargo.toml\n[lib]\n//- crates/a/src/lib.rs\n#[test]\nfn a() {}\n",
        expect: &[
            "crates/a/tests/slow.rs: stands beside `tests/it/`: one test binary per crate",
            "crates/a/tests/it/main.rs: is missing",
            "crates/b/src/lib.rs:2: a unit test that nobody runs: `Cargo.toml` turns them off",
        ],
    },
];

#[test]
fn every_check_says_what_is_broken() {
    for example in EXAMPLES {
        let check = CHECKS.iter().find(|c| c.name == example.check).expect("the example names a check");
        let findings = (check.run)(&Tree::fixture(example.tree));
        let found: Vec<String> = findings.violations.iter().map(ToString::to_string).collect();
        assert_eq!(found, example.expect, "{} on\n{}", example.check, example.tree);
    }
}

#[test]
fn every_check_has_an_example_that_fails() {
    for check in CHECKS {
        let fails = EXAMPLES.iter().any(|e| e.check == check.name && !e.expect.is_empty());
        assert!(fails || GENERATED.contains(&check.name), "`{}` is not shown to fail", check.name);
    }
}

#[test]
fn a_rule_that_names_a_missing_place_is_broken() {
    let empty = Tree::fixture("//- xtask/src/main.rs\n");
    let named = [
        "instructions",
        "unsafe",
        "writes",
        "network",
        "front-ends",
        "architectures",
        "forward",
        "lists",
        "bytes",
    ];
    for check in CHECKS.iter().filter(|check| named.contains(&check.name)) {
        assert!(
            (check.run)(&empty)
                .violations
                .iter()
                .all(|violation| check.name == "unsafe" && violation.line == 0)
        );
        let broken = check.on_repository(&empty).violations;
        assert!(
            broken.iter().any(|violation| violation.message.contains("does not exist")),
            "{}",
            check.name
        );
    }
}
