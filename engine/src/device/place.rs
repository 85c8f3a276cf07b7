//! Where a model computes: as asked for, and as found.

use crate::LoadError;
use candle_core::{DType, Tensor};
use std::fmt;
use std::str::FromStr;
use tracing::info;

/// Where a model is to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// On the first GPU that this build knows and finds, or else on the processor.
    Auto,
    /// On the processor.
    #[default]
    Cpu,
    /// On the CUDA device of this number.
    Cuda(usize),
    /// On the Metal device of this number.
    Metal(usize),
}

/// A device that is there.
#[derive(Debug, Clone)]
pub struct Device {
    /// What it was found as; none for candle's own CPU device.
    choice: Option<DeviceChoice>,
    candle: candle_core::Device,
}

impl DeviceChoice {
    /// Opens the device and has it compute something.
    ///
    /// # Errors
    /// [`LoadError::Device`] where it is absent or does not compute.
    pub fn open(self) -> Result<Device, LoadError> {
        match self {
            Self::Auto => Ok(open_any()),
            Self::Cpu => Ok(Device::cpu()),
            Self::Cuda(_) | Self::Metal(_) => self.open_gpu(),
        }
    }

    fn open_gpu(self) -> Result<Device, LoadError> {
        let opened = match self {
            Self::Cuda(number) => candle_core::Device::new_cuda(number),
            Self::Metal(number) => candle_core::Device::new_metal(number),
            Self::Auto | Self::Cpu => Ok(candle_core::Device::Cpu),
        };
        let candle = opened.and_then(|device| try_out(&device).map(|()| device));
        candle
            .map(|candle| Device {
                choice: Some(self),
                candle,
            })
            .map_err(|error| LoadError::Device {
                device: self.to_string(),
                // Further lines are a backtrace, where the environment asks for one.
                detail: error.to_string().lines().take(1).collect(),
            })
    }
}

impl Device {
    /// The processor.
    pub fn cpu() -> Self {
        Self {
            choice: Some(DeviceChoice::Cpu),
            candle: candle_core::Device::Cpu,
        }
    }

    /// The processor, computing as a GPU does: to test that where there is none. Slow.
    pub fn candle_cpu() -> Self {
        Self {
            choice: None,
            candle: candle_core::Device::Cpu,
        }
    }

    /// True for the processor: it runs the engine's own kernels, which keep rows apart to the bit.
    pub fn is_cpu(&self) -> bool {
        self.choice == Some(DeviceChoice::Cpu)
    }

    /// candle's handle.
    pub(crate) fn candle(&self) -> &candle_core::Device {
        &self.candle
    }
}

/// The first GPU that is there, or the processor.
fn open_any() -> Device {
    let gpus = [
        (cfg!(feature = "cuda"), DeviceChoice::Cuda(0)),
        (cfg!(feature = "metal"), DeviceChoice::Metal(0)),
    ];
    for (_, choice) in gpus.into_iter().filter(|(built, _)| *built) {
        match choice.open_gpu() {
            Ok(device) => return device,
            Err(error) => info!(reason = %error, "no GPU: computing on the cpu"),
        }
    }
    Device::cpu()
}

/// A driver may be there and still refuse the kernels of this build: better found out now.
fn try_out(device: &candle_core::Device) -> candle_core::Result<()> {
    Tensor::ones(2, DType::F32, device)?
        .sqr()?
        .to_vec1::<f32>()
        .map(drop)
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, Some(number)),
            None => (text, None),
        };
        let number = match number.map(str::parse) {
            None => None,
            Some(Ok(number)) => Some(number),
            Some(Err(_)) => return Err(format!("no number of a device in {text:?}")),
        };
        match (kind, number) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("cuda", number) => {
                built(cfg!(feature = "cuda"), kind).map(|()| Self::Cuda(number.unwrap_or_default()))
            }
            ("metal", number) => built(cfg!(feature = "metal"), kind)
                .map(|()| Self::Metal(number.unwrap_or_default())),
            _ => Err("expected cpu, cuda[:N], metal[:N] or auto".to_owned()),
        }
    }
}

fn built(is_built: bool, feature: &str) -> Result<(), String> {
    if is_built {
        return Ok(());
    }
    Err(format!(
        "this program was built without {feature}: build it with the feature {feature}, or choose cpu or auto"
    ))
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => out.write_str("auto"),
            Self::Cpu => out.write_str("cpu"),
            Self::Cuda(number) => write!(out, "cuda:{number}"),
            Self::Metal(number) => write!(out, "metal:{number}"),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.choice {
            Some(choice) => choice.fmt(out),
            None => out.write_str("candle-cpu"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_kind_and_number() {
        assert_eq!("cpu".parse(), Ok(DeviceChoice::Cpu));
        assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
        for text in ["", "gpu", "cpu:0", "auto:1", "cuda:", "cuda:-1", "cuda:x"] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_device_that_was_not_built_is_refused_by_name() {
        let kinds = [
            ("cuda", cfg!(feature = "cuda")),
            ("metal", cfg!(feature = "metal")),
        ];
        for (kind, built) in kinds {
            let numbered = format!("{kind}:3");
            match numbered.parse::<DeviceChoice>() {
                Ok(choice) => assert!(built && choice.to_string() == numbered),
                Err(error) => {
                    assert!(
                        !built && error.contains(&format!("the feature {kind}")),
                        "{error}"
                    );
                }
            }
        }
    }

    #[test]
    fn without_a_gpu_auto_computes_on_the_cpu() {
        if !cfg!(any(feature = "cuda", feature = "metal")) {
            let device = DeviceChoice::Auto.open().unwrap();
            assert!(device.is_cpu());
            assert_eq!(device.to_string(), "cpu");
        }
    }
}
