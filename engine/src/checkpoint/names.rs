//! What files call a tensor.

use crate::Family;

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A row per token.
    Embedding,
    /// The norm before the output matrix.
    OutputNorm,
    /// Of rows of logits; absent where the embedding serves.
    Output,
    /// What rotary frequencies are divided by.
    RopeDivisors,
    /// The matrix of a part of a layer.
    Matrix(usize, Part),
    /// What is added to what a part's matrix makes.
    Bias(usize, Part),
    /// The norm of a part of a layer.
    Norm(usize, Part),
}

/// A part of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Before attention.
    Attention,
    Query,
    Key,
    Value,
    AttentionOutput,
    /// After attention.
    PostAttention,
    /// Before the feed-forward part.
    FeedForward,
    Gate,
    Up,
    Down,
    /// After the feed-forward part.
    PostFeedForward,
}

impl Role {
    pub(super) fn is_norm(self) -> bool {
        matches!(self, Self::OutputNorm | Self::Norm(..))
    }
}

/// The name in GGUF files.
pub(crate) fn gguf(role: Role) -> String {
    let (layer, part, end) = match role {
        Role::Embedding => return "token_embd.weight".to_owned(),
        Role::OutputNorm => return "output_norm.weight".to_owned(),
        Role::Output => return "output.weight".to_owned(),
        Role::RopeDivisors => return "rope_freqs.weight".to_owned(),
        Role::Matrix(layer, part) => (layer, part, ".weight"),
        Role::Bias(layer, part) => (layer, part, ".bias"),
        Role::Norm(layer, part @ (Part::Query | Part::Key)) => (layer, part, "_norm.weight"),
        Role::Norm(layer, part) => (layer, part, ".weight"),
    };
    let part = match part {
        Part::Attention => "attn_norm",
        Part::Query => "attn_q",
        Part::Key => "attn_k",
        Part::Value => "attn_v",
        Part::AttentionOutput => "attn_output",
        Part::PostAttention => "post_attention_norm",
        Part::FeedForward => "ffn_norm",
        Part::Gate => "ffn_gate",
        Part::Up => "ffn_up",
        Part::Down => "ffn_down",
        Part::PostFeedForward => "post_ffw_norm",
    };
    format!("blk.{layer}.{part}{end}")
}

/// The name in the safetensors that models of `family` are published in.
pub(crate) fn folder(role: Role, family: Family) -> String {
    let (layer, part, end) = match role {
        Role::Embedding => return "model.embed_tokens.weight".to_owned(),
        Role::OutputNorm => return "model.norm.weight".to_owned(),
        Role::Output => return "lm_head.weight".to_owned(),
        // Folders state the formula instead.
        Role::RopeDivisors => return "rope_freqs".to_owned(),
        Role::Matrix(layer, part) => (layer, part, "_proj.weight"),
        Role::Bias(layer, part) => (layer, part, "_proj.bias"),
        Role::Norm(layer, part @ (Part::Query | Part::Key)) => (layer, part, "_norm.weight"),
        Role::Norm(layer, part) => (layer, part, ".weight"),
    };
    let part = match part {
        Part::Attention => "input_layernorm",
        Part::Query => "self_attn.q",
        Part::Key => "self_attn.k",
        Part::Value => "self_attn.v",
        Part::AttentionOutput => "self_attn.o",
        Part::PostAttention => "post_attention_layernorm",
        // The name is older than norms after attention.
        Part::FeedForward if family != Family::Gemma3 => "post_attention_layernorm",
        Part::FeedForward => "pre_feedforward_layernorm",
        Part::Gate => "mlp.gate",
        Part::Up => "mlp.up",
        Part::Down => "mlp.down",
        Part::PostFeedForward => "post_feedforward_layernorm",
    };
    format!("model.layers.{layer}.{part}{end}")
}
