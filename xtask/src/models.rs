//! Model files, by hand.

use anyhow::Result;
use models::{Manifest, fetch, manifest, store_dir};

/// What to do with model files.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the known models and presets, and which are in the store.
    List,
    /// Fetch models and verify them.
    Fetch {
        /// Models or presets.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Print where a model lies, or would lie, in the store.
    Path {
        /// A model or a preset.
        name: String,
    },
}

/// Runs one of them.
pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::List => list(manifest()),
        Command::Fetch { names } => fetch_all(&names)?,
        Command::Path { name } => {
            for model in manifest().find_all(&name)? {
                println!("{}", model.path(&store_dir()).display());
            }
        }
    }
    Ok(())
}

/// Fetches the models that `names` mean. Names of built-in models need nothing.
pub(crate) fn fetch_all(names: &[String]) -> Result<()> {
    let store = store_dir();
    for name in names.iter().filter(|name| *name != "synthetic") {
        for model in manifest().find_all(name)? {
            let path = fetch(model, &store)?;
            eprintln!("{}: {}", model.id, path.display());
        }
    }
    Ok(())
}

fn list(manifest: &Manifest) {
    let store = store_dir();
    println!("store: {}\n", store.display());
    println!(
        "{:<20} {:>9}  {:<11} in the store",
        "model", "size", "licence"
    );
    for model in manifest.models() {
        let megabytes = model.bytes as f64 / 1e6;
        let here = if model.path(&store).exists() {
            "yes"
        } else {
            "no"
        };
        println!(
            "{:<20} {megabytes:>6.0} MB  {:<11} {here}",
            model.id, model.licence
        );
    }
    println!("\n{:<20} {:<20} draft", "preset", "target");
    for (name, preset) in manifest.presets() {
        println!("{name:<20} {:<20} {}", preset.target, preset.draft);
    }
    println!("{0:<20} {0:<20} {0} (built in)", "synthetic");
}
