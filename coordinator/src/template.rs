//! Chat templates: Jinja as Hugging Face's tokenizers render it.

mod date;
mod json;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value, context};
use std::time::SystemTime;

const NAME: &str = "chat";

/// One message, as templates see it.
#[derive(Debug)]
pub(crate) struct Message {
    /// Who speaks.
    pub(crate) role: String,
    /// What is said.
    pub(crate) content: String,
}

/// A model's chat template, ready to render.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    /// Compiles `source`, which may use the text of the model's first and last token.
    ///
    /// # Errors
    /// Why it cannot be used, for people: it is empty, or no valid template.
    pub(crate) fn new(source: &str, bos_token: String, eos_token: String) -> Result<Self, String> {
        if source.is_empty() {
            return Err("the model has no chat template".to_owned());
        }
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| error.to_string())?;
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", json::tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|error| format!("the model's chat template is not valid: {error}"))?;
        Ok(Self {
            environment,
            bos_token,
            eos_token,
        })
    }

    /// The prompt that asks for the assistant's next message.
    ///
    /// # Errors
    /// Why the template refuses the conversation, for people.
    pub(crate) fn render(&self, messages: &[Message]) -> Result<String, String> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| context! { role => &message.role, content => &message.content })
            .collect();
        let variables = context! {
            messages,
            add_generation_prompt => true,
            bos_token => &self.bos_token,
            eos_token => &self.eos_token,
            tools => (),
        };
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(variables))
            .map_err(|error| format!("the model's chat template refuses the conversation: {error}"))
    }
}

/// Templates call this for conversations that they do not take.
fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Templates that state the date call this.
fn strftime_now(format: String) -> String {
    date::strftime(&format, SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Chat {
        messages: Vec<Turn>,
        prompt: String,
    }

    #[derive(Deserialize)]
    struct Turn {
        role: String,
        content: String,
    }

    fn messages(turns: Vec<Turn>) -> Vec<Message> {
        let message = |Turn { role, content }| Message { role, content };
        turns.into_iter().map(message).collect()
    }

    fn user(content: &str) -> Vec<Message> {
        vec![Message {
            role: "user".into(),
            content: content.into(),
        }]
    }

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(source, "<s>".into(), "</s>".into()).unwrap()
    }

    #[test]
    fn real_templates_render_as_elsewhere() {
        let models = [
            (
                include_str!("../tests/data/qwen2.5-coder.jinja"),
                include_str!("../tests/data/qwen2.5-coder.chats.json"),
            ),
            (
                include_str!("../tests/data/smollm2.jinja"),
                include_str!("../tests/data/smollm2.chats.json"),
            ),
        ];
        for (source, chats) in models {
            let chats: Vec<Chat> = serde_json::from_str(chats).unwrap();
            assert!(!chats.is_empty());
            for chat in chats {
                let rendered = template(source).render(&messages(chat.messages));
                assert_eq!(rendered.unwrap(), chat.prompt);
            }
        }
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let source = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n";
        assert_eq!(template(source).render(&user("Hi")).unwrap(), "Hi\n");
    }

    #[test]
    fn python_methods_and_special_tokens_work() {
        let source =
            "{{ bos_token }}{{ messages[0]['content'].strip().split(' ')[0] }}{{ eos_token }}";
        assert_eq!(
            template(source).render(&user("  Hi you ")).unwrap(),
            "<s>Hi</s>"
        );
    }

    #[test]
    fn what_users_write_is_neither_escaped_nor_executed() {
        let content = "<b>&{{ bos_token }}'\"";
        assert_eq!(
            template("{{ messages[0].content }}")
                .render(&user(content))
                .unwrap(),
            content
        );
        let json = template("{{ messages[0] | tojson }}")
            .render(&user("<&'é\\u003c"))
            .unwrap();
        assert_eq!(json, r#"{"role": "user", "content": "<&'é\\u003c"}"#);
    }

    #[test]
    fn a_template_can_refuse_a_conversation_with_its_own_words() {
        let source = "{{ raise_exception('roles must alternate') }}";
        let refusal = template(source).render(&user("Hi")).unwrap_err();
        assert!(refusal.contains("roles must alternate"), "{refusal}");
    }

    #[test]
    fn an_invalid_template_is_found_when_it_is_read() {
        assert!(ChatTemplate::new("{% for %}", String::new(), String::new()).is_err());
    }
}
