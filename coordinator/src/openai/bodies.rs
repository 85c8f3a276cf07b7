//! The bodies of requests for text. The names of their fields are OpenAI's where it has them, and those
//! of vLLM and llama.cpp otherwise. An unknown field is refused; those that are ignored are listed.

use super::messages::Message;
use super::speculative::Speculative;
use super::structured::{ResponseFormat, StructuredOutputs};
use super::tools::{Tool, ToolChoice};
use super::values::{Json, Prompts, Seed, Strings, Unsupported};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::HashMap;
use utoipa::ToSchema;

/// How a stream is written.
#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamOptions {
    /// Ends the stream with the counts of tokens.
    pub(super) include_usage: Option<bool>,
    /// Taken for clients of vLLM; the counts come once, at the end.
    #[expect(dead_code, reason = "taken, and ignored on purpose")]
    continuous_usage_stats: Option<bool>,
}

/// Declares the parameters, once: as [`Parameters`], and as the fields that [`body`] gives to the
/// bodies of requests, where an unknown field is refused. `$d` stands for a dollar sign within.
macro_rules! parameters {
    ($d:tt $( $(#[$meta:meta])* $field:ident: $kind:ty, )*) => {
        /// The parameters of a request.
        #[derive(Debug, Default)]
        pub(super) struct Parameters {
            $( pub(super) $field: Option<$kind>, )*
        }

        /// Declares a body: its own fields, then the parameters, then those that are ignored.
        macro_rules! body {
            ($d(#[$d outer:meta])* struct $d name:ident { $d($d own:tt)* }) => {
                $d(#[$d outer])*
                #[derive(Debug, Default, Deserialize, ToSchema)]
                #[serde(deny_unknown_fields)]
                pub(super) struct $d name {
                    $d($d own)*
                    $( $(#[$meta])* $field: Option<$kind>, )*
                    /// Taken and ignored: this service keeps no answers.
                    #[expect(dead_code, reason = "taken, and ignored on purpose")]
                    #[schema(value_type = Option<bool>)]
                    store: Option<IgnoredAny>,
                    /// Taken and ignored: this service keeps no answers.
                    #[expect(dead_code, reason = "taken, and ignored on purpose")]
                    #[schema(value_type = Option<Object>)]
                    metadata: Option<IgnoredAny>,
                    /// Taken and ignored: there is one tier.
                    #[expect(dead_code, reason = "taken, and ignored on purpose")]
                    #[schema(value_type = Option<String>)]
                    service_tier: Option<IgnoredAny>,
                    /// Taken and ignored: `user` says whose request it is.
                    #[expect(dead_code, reason = "taken, and ignored on purpose")]
                    #[schema(value_type = Option<String>)]
                    safety_identifier: Option<IgnoredAny>,
                    /// Taken and ignored: what begins alike is shared without a key.
                    #[expect(dead_code, reason = "taken, and ignored on purpose")]
                    #[schema(value_type = Option<String>)]
                    prompt_cache_key: Option<IgnoredAny>,
                    /// Taken and ignored: how long computed prompts are kept is the workers' matter.
                    #[expect(dead_code, reason = "taken, and ignored on purpose")]
                    #[schema(value_type = Option<String>)]
                    prompt_cache_retention: Option<IgnoredAny>,
                    /// Taken and ignored, for clients of llama.cpp: prompts are always cached.
                    #[expect(dead_code, reason = "taken, and ignored on purpose")]
                    #[schema(value_type = Option<bool>)]
                    cache_prompt: Option<IgnoredAny>,
                }

                impl $d name {
                    /// Takes the parameters out.
                    pub(super) fn parameters(&mut self) -> Parameters {
                        Parameters { $( $field: self.$field.take(), )* }
                    }
                }
            };
        }
    };
}

parameters! { $
    /// The model. Without, the only one.
    model: String,
    /// Streams the answer as server-sent events.
    stream: bool,
    /// How it is streamed; only with `stream`.
    stream_options: StreamOptions,
    /// How many choices to generate, 1 to 64. Default 1.
    n: u32,
    /// Divides the logits, 0 to 100; 0 takes the most likely token. Default 1.
    temperature: f32,
    /// Keeps the most likely tokens whose probability reaches this. Default 1, all.
    top_p: f32,
    /// Keeps so many of the most likely tokens. 0 or -1 keeps all, the default.
    top_k: i64,
    /// Drops tokens that are less probable than this times the most likely. Default 0.
    min_p: f32,
    /// Locally typical sampling. Default 1, all.
    typical_p: f32,
    /// Divides the logits of tokens that prompt or output hold. Default 1.
    #[serde(alias = "repeat_penalty")]
    repetition_penalty: f32,
    /// Taken off the logits of tokens that the output holds, -2 to 2.
    presence_penalty: f32,
    /// Taken off the logits of tokens for each time that the output holds them, -2 to 2.
    frequency_penalty: f32,
    /// The penalties look at so many last tokens. -1 looks at all, the default; 0 is no penalties.
    repeat_last_n: i64,
    /// Added to the logits of these token ids, -100 to 100 each.
    #[schema(value_type = Option<HashMap<String, f32>>)]
    logit_bias: HashMap<u32, f32>,
    /// Only these token ids can be chosen.
    allowed_token_ids: Vec<u32>,
    /// These token ids are never chosen.
    banned_token_ids: Vec<u32>,
    /// Words that the output must not hold.
    bad_words: Vec<String>,
    /// The same seed gives the same text, whatever the drafts.
    #[schema(value_type = Option<i64>)]
    seed: Seed,
    /// A string or strings that end the text, at most 64.
    stop: Strings,
    /// Token ids that end the text.
    stop_token_ids: Vec<u32>,
    /// Keeps the stop string in the text.
    include_stop_str_in_output: bool,
    /// Goes on past the model's end of text.
    ignore_eos: bool,
    /// The most tokens to generate. Without, up to the end of the context.
    max_tokens: u32,
    /// No end before so many tokens.
    min_tokens: u32,
    /// As vLLM has it: the lower goes first, -100 to 100. Default 0.
    priority: i32,
    /// Whose request this is: users share the service fairly.
    user: String,
    /// What the text must match.
    response_format: ResponseFormat,
    /// What the text must match, as vLLM spells it.
    structured_outputs: StructuredOutputs,
    /// The text is JSON that matches this schema.
    #[schema(value_type = Option<Object>)]
    guided_json: Json,
    /// The text matches this regular expression.
    guided_regex: String,
    /// The text is one of these.
    guided_choice: Vec<String>,
    /// The text is of this grammar, written as for Lark.
    guided_grammar: String,
    /// Whether and how to speculate. Never changes the law of the text.
    speculative: Speculative,
    /// The same as in `speculative`.
    #[serde(rename = "speculative.enabled")]
    speculative_enabled: bool,
    /// The same as in `speculative`.
    #[serde(rename = "speculative.n_max")]
    speculative_n_max: u32,
    /// The same as in `speculative`.
    #[serde(rename = "speculative.n_min")]
    speculative_n_min: u32,
    /// The same as in `speculative`.
    #[serde(rename = "speculative.p_min")]
    speculative_p_min: f32,
}

body! {
    /// A conversation that goes on.
    struct ChatRequest {
        /// The messages, oldest first.
        pub(super) messages: Vec<Message>,
        /// What the model may call.
        pub(super) tools: Option<Vec<Tool>>,
        /// Whether it may, or must: auto, none, required, or a function.
        pub(super) tool_choice: Option<ToolChoice>,
        /// Reports the log-probability of each token.
        pub(super) logprobs: Option<bool>,
        /// And those of so many of the most likely tokens, 0 to 20; only with `logprobs`.
        pub(super) top_logprobs: Option<u32>,
        /// The same as `max_tokens`, and goes before it.
        pub(super) max_completion_tokens: Option<u32>,
        /// More variables for the model's chat template.
        #[schema(value_type = Option<Object>)]
        pub(super) chat_template_kwargs: Option<Json>,
        /// Goes on with the last message, which is the assistant's.
        pub(super) continue_final_message: Option<bool>,
        /// Begins the assistant's next message: the opposite of `continue_final_message`.
        pub(super) add_generation_prompt: Option<bool>,
        /// Taken and ignored: whether several functions are called at once is the model's matter.
        #[expect(dead_code, reason = "taken, and ignored on purpose")]
        #[schema(value_type = Option<bool>)]
        pub(super) parallel_tool_calls: Option<IgnoredAny>,
    }
}

body! {
    /// Texts that go on.
    struct CompletionRequest {
        /// A text, token ids, or a list of either.
        #[schema(required)]
        pub(super) prompt: Option<Prompts>,
        /// Begins each choice with its prompt. Not together with `logprobs`.
        pub(super) echo: Option<bool>,
        /// Reports the log-probabilities of each token and of so many of the most likely, 0 to 20.
        pub(super) logprobs: Option<u32>,
        /// Only the same as `n`: no choice is left out.
        pub(super) best_of: Option<u32>,
        /// Not supported: nothing is written between two texts.
        #[expect(dead_code, reason = "reading it refuses every value")]
        #[schema(ignore)]
        pub(super) suffix: Option<Unsupported>,
    }
}
