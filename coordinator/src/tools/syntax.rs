//! How models write calls.

/// The ways to write a call that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`, any number of them: Hermes, Qwen.
    Hermes,
    /// `[TOOL_CALLS] [{"name": …, "arguments": …}, …]`: Mistral.
    Mistral,
    /// `{"name": …, "parameters": …}` and nothing else: Llama 3.
    Llama,
}

impl Syntax {
    /// The one that a chat template teaches, by what it writes itself.
    pub(crate) fn of_template(source: &str) -> Option<Self> {
        let has = |text| source.contains(text);
        if !has("tools") {
            None
        } else if has(Self::Hermes.opening()) {
            // Calls as XML all the way down are another matter.
            (!has("<function=")).then_some(Self::Hermes)
        } else if has(Self::Mistral.opening()) {
            (!has("[ARGS]")).then_some(Self::Mistral)
        } else if has("\"name\":") && has("\"parameters\":") {
            Some(Self::Llama)
        } else {
            None
        }
    }

    /// What calls begin with, before the JSON. Its first letter is nowhere else in it.
    pub(crate) fn opening(self) -> &'static str {
        match self {
            Self::Hermes => "<tool_call>",
            Self::Mistral => "[TOOL_CALLS]",
            Self::Llama => "",
        }
    }

    /// What calls end with, after the JSON.
    pub(crate) fn closing(self) -> &'static str {
        match self {
            Self::Hermes => "</tool_call>",
            Self::Mistral | Self::Llama => "",
        }
    }

    /// What the JSON of calls begins with.
    pub(super) fn bracket(self) -> char {
        match self {
            Self::Hermes | Self::Llama => '{',
            Self::Mistral => '[',
        }
    }

    /// What the arguments are called.
    pub(super) fn arguments(self) -> &'static str {
        match self {
            Self::Hermes | Self::Mistral => "arguments",
            Self::Llama => "parameters",
        }
    }
}
