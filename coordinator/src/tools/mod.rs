//! Functions that the model may call: what a conversation says of them, how models write calls, and
//! how what they write is read. Pure; knows nothing of workers and clients.

mod call;
mod grammar;
mod reader;
mod syntax;
#[cfg(test)]
mod tests;

pub(crate) use reader::{Read, Reader};
pub(crate) use syntax::Syntax;

use crate::model::Model;
use proto::v1::{Chat, StructuredOutput, Tool, ToolMode, structured_output::Form, tool_choice};
use serde::de::IgnoredAny;
use service::Error;
use speculation::TokenId;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tokenizers::Tokenizer;

/// The most functions of a request.
const MAX_TOOLS: usize = 128;

/// The longest name of a function, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// What a conversation says about calling functions, checked.
#[derive(Debug)]
pub(crate) struct Calling<'a> {
    tools: &'a [Tool],
    choice: Choice<'a>,
    model: &'a Model,
}

/// Whether functions are called.
#[derive(Debug, Clone, Copy)]
enum Choice<'a> {
    /// The model chooses.
    May,
    /// At least one.
    Must,
    /// This one, once.
    This(&'a Tool),
}

/// How the calls in an answer are read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// How the model writes them.
    pub(crate) syntax: Syntax,
    /// The functions that there are.
    pub(crate) names: Arc<HashSet<String>>,
    /// Special tokens that are part of a call, and must have their text in the answer.
    pub(crate) shown: Arc<[TokenId]>,
}

impl<'a> Calling<'a> {
    /// Checks what `chat` says for `model`.
    ///
    /// # Errors
    /// [`service::Class::Invalid`] with the field's path.
    pub(crate) fn new(chat: &'a Chat, model: &'a Model) -> Result<Self, Error> {
        check_tools(&chat.tools)?;
        let (choice, tools) = choice(chat)?;
        let template = model.template.as_ref();
        if !tools.is_empty() && template.is_ok_and(|template| !template.takes_tools()) {
            let message = "the model's chat template knows of no tools";
            return Err(Error::invalid("prompt.chat.tools", message));
        }
        Ok(Self {
            tools,
            choice,
            model,
        })
    }

    /// The functions that the model is told of.
    pub(crate) fn shown(&self) -> &'a [Tool] {
        self.tools
    }

    /// What the answer must match so that the calls are made that must be, with arguments that must
    /// match their schemas; `None` where it may be any text.
    ///
    /// # Errors
    /// [`service::Class::Invalid`] where it is not known how the model writes calls.
    pub(crate) fn structured(&self) -> Result<Option<StructuredOutput>, Error> {
        let strict = self.tools.iter().position(|tool| tool.strict);
        let field = match (self.choice, strict) {
            (Choice::May, None) => return Ok(None),
            (Choice::May, Some(index)) => format!("prompt.chat.tools[{index}].strict"),
            (Choice::Must, _) => "prompt.chat.tool_choice.mode".to_owned(),
            (Choice::This(_), _) => "prompt.chat.tool_choice.name".to_owned(),
        };
        let syntax = self.syntax().ok_or_else(|| {
            Error::invalid(&*field, "it is not known how this model writes calls")
        })?;
        let tools: Vec<_> = match self.choice {
            Choice::This(tool) => vec![tool],
            Choice::May | Choice::Must => self.tools.iter().collect(),
        };
        let lark = match self.choice {
            Choice::May => grammar::optional(syntax, &tools, &self.model.tokenizer),
            Choice::Must => Some(grammar::calls(syntax, &tools, &self.model.tokenizer)),
            Choice::This(_) => Some(grammar::call(syntax, &tools, &self.model.tokenizer)),
        };
        let Some(lark) = lark else {
            let message = "this model's calls can be held to a schema only where they are required";
            return Err(Error::invalid(field, message));
        };
        let form = Some(Form::Lark(lark));
        Ok(Some(StructuredOutput { form }))
    }

    /// How the calls in the answer are read; `None` where there can be none, or it is not known how
    /// the model writes them.
    pub(crate) fn reading(&self) -> Option<Reading> {
        let syntax = self.syntax().filter(|_| !self.tools.is_empty())?;
        let names = self.tools.iter().map(|tool| tool.name.clone()).collect();
        Some(Reading {
            syntax,
            names: Arc::new(names),
            shown: special_marks(syntax, &self.model.tokenizer),
        })
    }

    fn syntax(&self) -> Option<Syntax> {
        self.model.template.as_ref().ok()?.syntax()
    }
}

/// Those of what calls begin and end with that are special tokens.
fn special_marks(syntax: Syntax, tokenizer: &Tokenizer) -> Arc<[TokenId]> {
    let added = tokenizer.get_added_vocabulary();
    let marks = [syntax.opening(), syntax.closing()].into_iter();
    let special = marks.filter(|mark| added.is_special_token(mark));
    special
        .filter_map(|mark| tokenizer.token_to_id(mark))
        .collect()
}

/// Whether functions are called, and the functions that the model is told of.
fn choice(chat: &Chat) -> Result<(Choice<'_>, &[Tool]), Error> {
    const MODE: &str = "prompt.chat.tool_choice.mode";
    let tools = &*chat.tools;
    let stated = chat.tool_choice.as_ref();
    match stated.and_then(|stated| stated.choice.as_ref()) {
        None => Ok((Choice::May, tools)),
        Some(tool_choice::Choice::Name(name)) => {
            let tool = tools
                .iter()
                .find(|tool| tool.name == *name)
                .ok_or_else(|| {
                    let message = format!("there is no tool `{name:.64}`");
                    Error::invalid("prompt.chat.tool_choice.name", message)
                })?;
            Ok((Choice::This(tool), tools))
        }
        Some(tool_choice::Choice::Mode(mode)) => {
            let mode = ToolMode::try_from(*mode);
            match mode.map_err(|error| Error::invalid(MODE, error.to_string()))? {
                ToolMode::Unspecified | ToolMode::Auto => Ok((Choice::May, tools)),
                ToolMode::None => Ok((Choice::May, &[])),
                ToolMode::Required if tools.is_empty() => Err(Error::invalid(
                    MODE,
                    "requires a call, and there are no tools",
                )),
                ToolMode::Required => Ok((Choice::Must, tools)),
            }
        }
    }
}

fn check_tools(tools: &[Tool]) -> Result<(), Error> {
    if tools.len() > MAX_TOOLS {
        let message = format!("must be at most {MAX_TOOLS}, not {}", tools.len());
        return Err(Error::invalid("prompt.chat.tools", message));
    }
    let mut names = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let invalid = |field: &str, message: String| {
            let field = format!("prompt.chat.tools[{index}].{field}");
            Err(Error::invalid(field, message))
        };
        let name = &*tool.name;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_plain) {
            let message = "must have 1 to 64 letters, digits, underscores and hyphens";
            return invalid("name", message.to_owned());
        }
        if !names.insert(name) {
            return invalid("name", format!("`{name}` is given twice"));
        }
        if !tool.parameters.is_empty() {
            // Whether the schema makes sense, the target says where it is needed.
            if let Err(error) =
                serde_json::from_str::<BTreeMap<String, IgnoredAny>>(&tool.parameters)
            {
                return invalid("parameters", format!("must be a JSON object: {error}"));
            }
        }
    }
    Ok(())
}
