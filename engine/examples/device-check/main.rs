//! Checks a device: exactness and speed of the engine on it, with models that it makes itself.
//!
//! `device-check [--device cpu|candle-cpu|cuda[:N]|metal[:N]|auto] [--quick]` prints one table. `tests/gpu/check`
//! builds it for the GPU that is there and runs it. Ends with 1 where the device's logits are wrong.

mod exactness;
mod models;
mod runner;
mod speed;

use anyhow::{Context as _, Result, bail};
use engine::{CacheType, Device, DeviceChoice, WeightType};
use exactness::Exactness;
use models::Models;
use speed::Speed;
use std::process::ExitCode;

/// What is asked for.
struct Options {
    device: Device,
    quick: bool,
}

/// A row of the table.
struct Setting {
    /// The weights of the file.
    stored: models::Encoding,
    held: WeightType,
    cache: CacheType,
}

const HEADER: [&str; 11] = [
    "weights",
    "held as",
    "cache",
    "tok/s, 1 row",
    "4 rows",
    "8 rows",
    "8 texts",
    "prefill tok/s",
    "largest difference",
    "same argmax",
    "spec = plain",
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("device-check: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True where all is as it should be.
#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn run() -> Result<bool> {
    let options = Options::parse(std::env::args().skip(1))?;
    let models = Models::write(options.quick)?;
    let device = &options.device;
    println!("device {device}; {}", models.description());
    println!(
        "| {} |\n|{}",
        HEADER.join(" | "),
        "---|".repeat(HEADER.len())
    );
    let mut good = true;
    for setting in settings(device) {
        let exact = Exactness::of(&models, &setting, device).context("exactness")?;
        // Only the quantised model is large enough to measure.
        let speed = match setting.stored {
            models::Encoding::F32 => None,
            models::Encoding::Q4K => Some(Speed::of(&models, &setting, device).context("speed")?),
        };
        println!("| {} |", row(&setting, &exact, speed.as_ref()).join(" | "));
        good &= exact.is_close(&setting);
    }
    println!(
        "4 rows, 8 rows, 8 texts: the time of such a step over that of one row. Differences are relative to the spread of a \
         row's logits, against the processor's kernels on the same file."
    );
    if !good {
        println!("WRONG: the logits differ by more than rounding explains");
    }
    Ok(good)
}

fn row(setting: &Setting, exact: &Exactness, speed: Option<&Speed>) -> Vec<String> {
    let mut row = vec![
        setting.stored.to_string(),
        setting.held.to_string(),
        setting.cache.to_string(),
    ];
    row.extend(match speed {
        Some(speed) => [
            format!("{:.1}", speed.tokens_per_second),
            format!("{:.2}", speed.four_rows),
            format!("{:.2}", speed.eight_rows),
            format!("{:.2}", speed.eight_texts),
            format!("{:.0}", speed.prefill),
        ],
        None => ["–"; 5].map(str::to_owned),
    });
    row.extend([
        format!("{:.1e}", exact.difference),
        format!("{:.1} %", 100.0 * exact.same_choice),
        format!("{} of {}", exact.same_texts, exact.texts),
    ]);
    row
}

/// The processor's own kernels take weights as they are stored.
fn settings(device: &Device) -> Vec<Setting> {
    use models::Encoding::{F32, Q4K};
    let setting = |stored, held, cache| Setting {
        stored,
        held,
        cache,
    };
    let mut settings = vec![
        setting(F32, WeightType::Stored, CacheType::F32),
        setting(Q4K, WeightType::Stored, CacheType::F32),
        setting(Q4K, WeightType::Stored, CacheType::F16),
    ];
    if !device.is_cpu() {
        settings.push(setting(Q4K, WeightType::F16, CacheType::F16));
        settings.push(setting(Q4K, WeightType::Bf16, CacheType::F16));
    }
    settings
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let (mut device, mut quick) = ("auto".to_owned(), false);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--device" => device = args.next().context("--device needs a value")?,
                "--quick" => quick = true,
                other => bail!("unknown argument {other}; known are --device D and --quick"),
            }
        }
        let device = match device.as_str() {
            "candle-cpu" => Device::candle_cpu(),
            other => other
                .parse::<DeviceChoice>()
                .map_err(anyhow::Error::msg)?
                .open()?,
        };
        Ok(Self { device, quick })
    }
}
