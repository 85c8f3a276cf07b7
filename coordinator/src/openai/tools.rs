//! Functions that the model may call, and its calls, as OpenAI writes both.

use super::error::Failure;
use super::values::Json;
use proto::v1::{self, ToolMode, tool_choice::Choice};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The only kind of tool.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ToolKind {
    /// A function.
    #[default]
    Function,
}

/// A tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Tool {
    /// Its kind.
    #[serde(default)]
    #[expect(dead_code, reason = "reading it refuses every other kind")]
    r#type: ToolKind,
    /// What can be called.
    function: Function,
}

/// A function.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Function {
    /// Its name.
    name: String,
    /// What it does, for the model.
    description: Option<String>,
    /// The JSON schema of its arguments.
    #[schema(value_type = Option<Object>)]
    parameters: Option<Json>,
    /// Has the arguments match the schema also where the model may choose whether to call.
    strict: Option<bool>,
}

impl From<Tool> for v1::Tool {
    fn from(Tool { function, .. }: Tool) -> Self {
        Self {
            name: function.name,
            description: function.description.unwrap_or_default(),
            parameters: function.parameters.map(|json| json.0).unwrap_or_default(),
            strict: function.strict.unwrap_or_default(),
        }
    }
}

/// Whether the model may or must call functions.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub(super) enum ToolChoice {
    /// As the mode says.
    Mode(Mode),
    /// This function.
    Function(NamedTool),
}

/// Whether the model may or must call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// It may.
    Auto,
    /// It must not.
    None,
    /// It must.
    Required,
}

impl ToolChoice {
    fn must_call(&self) -> bool {
        matches!(self, Self::Mode(Mode::Required) | Self::Function(_))
    }
}

impl From<ToolChoice> for v1::ToolChoice {
    fn from(choice: ToolChoice) -> Self {
        let mode = match choice {
            ToolChoice::Mode(Mode::Auto) => ToolMode::Auto,
            ToolChoice::Mode(Mode::None) => ToolMode::None,
            ToolChoice::Mode(Mode::Required) => ToolMode::Required,
            ToolChoice::Function(named) => {
                let choice = Some(Choice::Name(named.function.name));
                return Self { choice };
            }
        };
        Self {
            choice: Some(Choice::Mode(mode.into())),
        }
    }
}

/// The function that must be called.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedTool {
    /// Its kind.
    #[serde(default)]
    #[expect(dead_code, reason = "reading it refuses every other kind")]
    r#type: ToolKind,
    /// The function.
    function: FunctionName,
}

/// A function's name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FunctionName {
    /// The name.
    name: String,
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ModeOrName;
        impl<'de> Visitor<'de> for ModeOrName {
            type Value = ToolChoice;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("auto, none, required or a function's name")
            }

            fn visit_str<E: de::Error>(self, mode: &str) -> Result<ToolChoice, E> {
                match mode {
                    "auto" => Ok(ToolChoice::Mode(Mode::Auto)),
                    "none" => Ok(ToolChoice::Mode(Mode::None)),
                    "required" => Ok(ToolChoice::Mode(Mode::Required)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(mode), &self)),
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<ToolChoice, A::Error> {
                let map = de::value::MapAccessDeserializer::new(map);
                NamedTool::deserialize(map).map(ToolChoice::Function)
            }
        }
        deserializer.deserialize_any(ModeOrName)
    }
}

/// A call of a function, in a message.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolCall {
    /// Numbers the calls of a choice; in streams only.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    /// Tells the calls of a conversation apart.
    id: String,
    /// Its kind.
    #[serde(default)]
    r#type: ToolKind,
    /// What is called.
    function: FunctionCall,
}

/// A function's name and its arguments.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FunctionCall {
    /// The name.
    name: String,
    /// A JSON object, as the model wrote it.
    arguments: String,
}

impl From<ToolCall> for v1::ToolCall {
    fn from(ToolCall { id, function, .. }: ToolCall) -> Self {
        Self {
            id,
            name: function.name,
            arguments: function.arguments,
        }
    }
}

impl ToolCall {
    /// What the model called, as a message tells it; with its number in a stream.
    pub(super) fn told(call: v1::ToolCall, index: Option<u32>) -> Self {
        Self {
            index,
            id: call.id,
            r#type: ToolKind::Function,
            function: FunctionCall {
                name: call.name,
                arguments: call.arguments,
            },
        }
    }
}

/// The tools of a request, and the choice among them.
///
/// # Errors
/// Where one must be called and there is none.
pub(super) fn of_request(
    tools: Option<Vec<Tool>>,
    choice: Option<ToolChoice>,
) -> Result<(Vec<v1::Tool>, Option<v1::ToolChoice>), Failure> {
    let tools: Vec<v1::Tool> = tools.into_iter().flatten().map(Into::into).collect();
    let must = choice.as_ref().is_some_and(ToolChoice::must_call);
    if tools.is_empty() && must {
        return Err(Failure::invalid("tool_choice", "goes only with tools"));
    }
    let choice = choice.filter(|_| !tools.is_empty());
    Ok((tools, choice.map(Into::into)))
}
