//! A conversation to token ids: checks it, and hands it to the model's template as Hugging Face's
//! tokenizers do.

use super::special::{is_marked, unmark};
use super::{SpecialTokens, Tokenized, encode};
use crate::model::Model;
use crate::tools::Calling;
use minijinja::Value;
use minijinja::value::ValueKind;
use proto::v1::{Chat, ChatMessage, Tool, ToolCall};
use service::Error;

/// Who may speak in a conversation.
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// Variables that are not the client's to set.
const RESERVED: [&str; 8] = [
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "bos_token",
    "eos_token",
    "raise_exception",
    "strftime_now",
];

/// Tokenizes a conversation. The template writes the first token itself where the model wants one.
///
/// # Errors
/// [`service::Class::Invalid`] with the field's path.
pub(super) fn tokenize(chat: &Chat, model: &Model) -> Result<Tokenized, Error> {
    check(chat)?;
    let refused = |reason| Error::invalid("prompt.chat", reason);
    let template = model.template.as_ref().map_err(|r| refused(r.clone()))?;
    let calling = Calling::new(chat, model)?;
    let writer = Writer(model.special.as_ref());
    let mut variables = writer.arguments(&chat.template_arguments)?;
    let messages = chat.messages.iter().map(|message| writer.message(message));
    let tools: Vec<_> = calling
        .shown()
        .iter()
        .map(|tool| writer.tool(tool))
        .collect();
    variables.extend([
        ("messages".to_owned(), messages.collect::<Vec<_>>().into()),
        (
            "tools".to_owned(),
            // Templates ask whether there is a list at all.
            if tools.is_empty() {
                ().into()
            } else {
                tools.into()
            },
        ),
        (
            "add_generation_prompt".to_owned(),
            (!chat.continue_final_message).into(),
        ),
    ]);
    let mut rendered = template.render(variables).map_err(refused)?;
    if chat.continue_final_message {
        let last = chat.messages.last().map(|message| &*message.content);
        cut_after(&mut rendered, &writer.written(last.unwrap_or_default()))?;
    }
    let token_ids = match writer.0 {
        Some(special) if is_marked(&rendered) => special.encode(&rendered, &model.tokenizer)?,
        _ => encode(&rendered, model)?,
    };
    let text = unmark(&rendered);
    Ok(Tokenized { token_ids, text })
}

fn check(chat: &Chat) -> Result<(), Error> {
    for (index, message) in chat.messages.iter().enumerate() {
        let field = |name| format!("prompt.chat.messages[{index}].{name}");
        let role = &*message.role;
        if !ROLES.contains(&role) {
            let message = format!("must be one of {}, not `{role}`", ROLES.join(", "));
            return Err(Error::invalid(field("role"), message));
        }
        if role != "assistant" && !message.tool_calls.is_empty() {
            let message = format!("are the assistant's, not the {role}'s");
            return Err(Error::invalid(field("tool_calls"), message));
        }
    }
    let Some(last) = chat.messages.last() else {
        return Err(Error::invalid("prompt.chat.messages", "are missing"));
    };
    let can_go_on =
        last.role == "assistant" && last.tool_calls.is_empty() && !last.content.trim().is_empty();
    if chat.continue_final_message && !can_go_on {
        let message = "needs a last message that is the assistant's, with text and without calls";
        return Err(Error::invalid(
            "prompt.chat.continue_final_message",
            message,
        ));
    }
    Ok(())
}

/// Cuts off what the template writes after the last message, as Hugging Face's tokenizers do.
fn cut_after(rendered: &mut String, last: &str) -> Result<(), Error> {
    let Some(at) = rendered.rfind(last.trim()) else {
        let message = "the model's chat template changes the last message";
        return Err(Error::invalid(
            "prompt.chat.continue_final_message",
            message,
        ));
    };
    // White space after it stays where the template keeps it.
    let kept = last.trim_start();
    let kept = if rendered[at..].starts_with(kept) {
        kept
    } else {
        kept.trim_end()
    };
    rendered.truncate(at + kept.len());
    Ok(())
}

/// Writes what users wrote for the template; where there are special tokens to tell it from, marked.
struct Writer<'a>(Option<&'a SpecialTokens>);

impl Writer<'_> {
    fn written(&self, text: &str) -> String {
        self.0
            .map_or_else(|| text.to_owned(), |special| special.mark(text))
    }

    fn text(&self, text: &str) -> Value {
        self.written(text).into()
    }

    /// More variables, from a JSON object.
    fn arguments(&self, json: &str) -> Result<Vec<(String, Value)>, Error> {
        const FIELD: &str = "prompt.chat.template_arguments";
        if json.is_empty() {
            return Ok(Vec::new());
        }
        let object = object(json).map_err(|reason| Error::invalid(FIELD, reason))?;
        let mut arguments = Vec::new();
        for name in object.try_iter().into_iter().flatten() {
            let value = object.get_item(&name).unwrap_or_default();
            let name = name.as_str().unwrap_or_default().to_owned();
            if RESERVED.contains(&&*name) {
                let message = format!("must not set `{name}`");
                return Err(Error::invalid(FIELD, message));
            }
            arguments.push((name, self.value(&value)));
        }
        Ok(arguments)
    }

    fn message(&self, message: &ChatMessage) -> Value {
        let mut fields = vec![
            ("role", Value::from(&*message.role)),
            ("content", self.text(&message.content)),
        ];
        for (name, text) in [
            ("name", &message.name),
            ("tool_call_id", &message.tool_call_id),
        ] {
            if !text.is_empty() {
                fields.push((name, self.text(text)));
            }
        }
        if !message.tool_calls.is_empty() {
            let calls = message.tool_calls.iter().map(|call| self.call(call));
            fields.push(("tool_calls", calls.collect::<Vec<_>>().into()));
        }
        Value::from_pairs(fields)
    }

    /// Templates write the arguments as JSON themselves.
    fn call(&self, call: &ToolCall) -> Value {
        let arguments = match object(&call.arguments) {
            Ok(object) => self.value(&object),
            Err(_) if call.arguments.trim().is_empty() => empty(),
            Err(_) => self.text(&call.arguments),
        };
        let function = [("name", self.text(&call.name)), ("arguments", arguments)];
        Value::from_pairs([
            ("id", self.text(&call.id)),
            ("type", Value::from("function")),
            ("function", Value::from_pairs(function)),
        ])
    }

    fn tool(&self, tool: &Tool) -> Value {
        let parameters = object(&tool.parameters).map(|schema| self.value(&schema));
        let parameters = parameters.unwrap_or_else(|_| {
            let none = [("type", Value::from("object")), ("properties", empty())];
            Value::from_pairs(none)
        });
        let mut function = vec![("name", self.text(&tool.name))];
        if !tool.description.is_empty() {
            function.push(("description", self.text(&tool.description)));
        }
        function.push(("parameters", parameters));
        Value::from_pairs([
            ("type", Value::from("function")),
            ("function", Value::from_pairs(function)),
        ])
    }

    /// JSON, with the strings in it marked.
    fn value(&self, value: &Value) -> Value {
        let items = || value.try_iter().into_iter().flatten();
        match value.kind() {
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq => items()
                .map(|item| self.value(&item))
                .collect::<Vec<_>>()
                .into(),
            ValueKind::Map => Value::from_pairs(items().map(|key| {
                let item = value.get_item(&key).unwrap_or_default();
                let key = key.as_str().unwrap_or_default();
                let key = self
                    .0
                    .map_or_else(|| key.to_owned(), |special| special.mark_key(key));
                (key, self.value(&item))
            })),
            _ => value.clone(),
        }
    }
}

fn empty() -> Value {
    Value::from_pairs(std::iter::empty::<(&str, Value)>())
}

/// A JSON object; its entries keep their order.
fn object(json: &str) -> Result<Value, String> {
    let value: Value =
        serde_json::from_str(json).map_err(|error| format!("is not JSON: {error}"))?;
    if value.kind() == ValueKind::Map {
        Ok(value)
    } else {
        Err("must be a JSON object".to_owned())
    }
}

#[cfg(test)]
mod tests;
