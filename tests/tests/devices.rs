//! Workers choose their device and plan their memory before they load anything, and say what they did.

use anyhow::Result;
use specdec_tests::drafts::write_target;
use specdec_tests::refused;

/// A device that no build for this system knows.
const FOREIGN: &str = if cfg!(target_os = "macos") {
    "cuda:1"
} else {
    "metal:1"
};

#[tokio::test]
async fn a_device_that_the_build_does_not_know_is_a_wrong_flag() -> Result<()> {
    for program in ["target-worker", "draft-worker"] {
        for device in [FOREIGN, "gpu", "cpu:1"] {
            let (code, log) =
                refused(program, &["--model", "synthetic", "--device", device]).await?;
            assert_eq!(code, Some(64), "{program} {device}: {log}");
            assert!(log.contains("--device"), "{program} {device}: {log}");
        }
        let (_, log) = refused(program, &["--model", "synthetic", "--device", FOREIGN]).await?;
        assert!(log.contains("built without"), "{program}: {log}");
    }
    Ok(())
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_it_is_loaded() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let model = write_target(folder.path())?;
    let args = ["--model", &model, "--cache-mib", "4000000000"];
    let (code, log) = refused("target-worker", &args).await?;
    assert_eq!(code, Some(1), "{log}");
    for part in [
        "does not fit into the memory of cpu",
        "lower --cache-mib",
        "4000000000 MiB of cache",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("model loaded"), "{log}");
    Ok(())
}
