//! The messages of a conversation, as OpenAI writes them.

use super::error::Failure;
use super::tools::ToolCall;
use super::values::Unsupported;
use proto::v1::ChatMessage;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::fmt;
use utoipa::ToSchema;

/// A message. Of what an assistant's may hold, only null is taken where there is no type.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Message {
    /// Who speaks: system, developer (the same), user, assistant or tool.
    role: String,
    /// What is said: a text, or a list of parts that are texts.
    content: Option<Content>,
    /// Who speaks, by name.
    name: Option<String>,
    /// What the assistant called.
    tool_calls: Option<Vec<ToolCall>>,
    /// Which call a tool answers.
    tool_call_id: Option<String>,
    /// Only null.
    #[expect(dead_code, reason = "reading it refuses every value")]
    #[schema(ignore)]
    refusal: Option<Unsupported>,
    /// Only null.
    #[expect(dead_code, reason = "reading it refuses every value")]
    #[schema(ignore)]
    annotations: Option<Unsupported>,
    /// Only null.
    #[expect(dead_code, reason = "reading it refuses every value")]
    #[schema(ignore)]
    audio: Option<Unsupported>,
    /// Only null.
    #[expect(dead_code, reason = "reading it refuses every value")]
    #[schema(ignore)]
    function_call: Option<Unsupported>,
}

impl Message {
    /// The message at `index` of a conversation.
    ///
    /// # Errors
    /// Where nothing is said, and nothing called.
    pub(super) fn translate(self, index: usize) -> Result<ChatMessage, Failure> {
        let tool_calls = self.tool_calls.unwrap_or_default();
        if self.content.is_none() && tool_calls.is_empty() {
            let field = format!("messages[{index}].content");
            return Err(Failure::invalid(field, "is missing"));
        }
        // Templates know the older name.
        let role = match self.role.as_str() {
            "developer" => "system".to_owned(),
            _ => self.role,
        };
        Ok(ChatMessage {
            role,
            content: self.content.map(Into::into).unwrap_or_default(),
            name: self.name.unwrap_or_default(),
            tool_calls: tool_calls.into_iter().map(Into::into).collect(),
            tool_call_id: self.tool_call_id.unwrap_or_default(),
        })
    }
}

/// What is said.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
enum Content {
    /// A text.
    Text(String),
    /// Parts, which are joined by line breaks.
    Parts(Vec<Part>),
}

impl From<Content> for String {
    fn from(content: Content) -> Self {
        match content {
            Content::Text(text) => text,
            Content::Parts(parts) => {
                let texts: Vec<String> = parts.into_iter().map(|part| part.text).collect();
                texts.join("\n")
            }
        }
    }
}

/// A part of what is said.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    /// Its kind.
    #[expect(dead_code, reason = "reading it refuses every other kind")]
    r#type: PartKind,
    /// The text.
    text: String,
}

/// The only kind of part.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum PartKind {
    /// A text.
    Text,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrParts;
        impl<'de> Visitor<'de> for TextOrParts {
            type Value = Content;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or a list of text parts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content, A::Error> {
                let mut all = Vec::new();
                while let Some(part) = parts.next_element()? {
                    all.push(part);
                }
                Ok(Content::Parts(all))
            }
        }
        deserializer.deserialize_any(TextOrParts)
    }
}
