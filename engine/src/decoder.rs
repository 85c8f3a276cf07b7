//! The decoder: one implementation for the Llama and Qwen2 families, parameterised by its
//! configuration.

use crate::{
    DecoderConfig, EngineError, Input, LoadError, LoadOptions, Logits, Model, ModelShape,
    gguf::GgufFile,
};

/// A decoder-only transformer with its weights.
pub struct Decoder {}

impl Decoder {
    /// Takes the weights from `file`.
    ///
    /// # Errors
    /// [`LoadError`] naming the tensor that is absent, of another shape or of an unknown type.
    pub fn from_gguf(
        file: &GgufFile,
        config: DecoderConfig,
        options: LoadOptions,
    ) -> Result<Self, LoadError> {
        let _ = (file, config, options);
        todo!("helper: decoder")
    }
}

impl Model for Decoder {
    fn shape(&self) -> &ModelShape {
        todo!("helper: decoder")
    }

    fn forward(&mut self, batch: &mut [Input<'_>]) -> Result<Logits, EngineError> {
        let _ = batch;
        todo!("helper: decoder")
    }
}
