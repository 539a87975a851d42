//! `demo`.

use crate::harness::redline;

#[test]
fn the_main_job_is_shown() {
    let run = redline(&["demo"]).ok();
    for expect in [
        "machine",
        "model",
        "questions right",
        "Score",
        "Generate",
        "tokens/s",
        "Diffuse",
        "passes",
        "of the",
    ] {
        assert!(run.out.contains(expect), "no `{expect}` in {}", run.out);
    }
    assert!(run.out.matches(" %  <- ").count() >= 4, "{}", run.out);
    assert_eq!(run.err, "");
}
