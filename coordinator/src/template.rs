//! Chat templates: Jinja as Hugging Face's tokenizers render it.

mod date;
mod json;

use crate::tools::Syntax;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use std::time::SystemTime;

const NAME: &str = "chat";

/// A model's chat template, ready to render.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
    takes_tools: bool,
    syntax: Option<Syntax>,
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
            takes_tools: source.contains("tools"),
            syntax: Syntax::of_template(source),
        })
    }

    /// True where it tells the model of functions that it may call.
    pub(crate) fn takes_tools(&self) -> bool {
        self.takes_tools
    }

    /// How it teaches the model to write calls, where that is known.
    pub(crate) fn syntax(&self) -> Option<Syntax> {
        self.syntax
    }

    /// The prompt of a conversation, which `variables` hold by the names that templates know.
    ///
    /// # Errors
    /// Why the template refuses the conversation, for people.
    pub(crate) fn render(
        &self,
        variables: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<String, String> {
        let special = [
            ("bos_token", &self.bos_token),
            ("eos_token", &self.eos_token),
        ];
        let special = special.map(|(name, token)| (name.to_owned(), Value::from(&**token)));
        let variables = Value::from_pairs(variables.into_iter().chain(special));
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

    fn user(content: &str) -> [(String, Value); 1] {
        let message = [("role", "user"), ("content", content)];
        let messages = vec![Value::from_pairs(message)];
        [("messages".to_owned(), messages.into())]
    }

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(source, "<s>".into(), "</s>".into()).unwrap()
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let source = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n";
        assert_eq!(template(source).render(user("Hi")).unwrap(), "Hi\n");
    }

    #[test]
    fn python_methods_and_special_tokens_work() {
        let source =
            "{{ bos_token }}{{ messages[0]['content'].strip().split(' ')[0] }}{{ eos_token }}";
        assert_eq!(
            template(source).render(user("  Hi you ")).unwrap(),
            "<s>Hi</s>"
        );
    }

    #[test]
    fn what_users_write_is_neither_escaped_nor_executed() {
        let content = "<b>&{{ bos_token }}'\"";
        assert_eq!(
            template("{{ messages[0].content }}")
                .render(user(content))
                .unwrap(),
            content
        );
        let json = template("{{ messages[0] | tojson }}")
            .render(user("<&'é\\u003c"))
            .unwrap();
        assert_eq!(json, r#"{"role": "user", "content": "<&'é\\u003c"}"#);
    }

    #[test]
    fn a_template_can_refuse_a_conversation_with_its_own_words() {
        let source = "{{ raise_exception('roles must alternate') }}";
        let refusal = template(source).render(user("Hi")).unwrap_err();
        assert!(refusal.contains("roles must alternate"), "{refusal}");
    }

    #[test]
    fn an_invalid_template_is_found_when_it_is_read() {
        assert!(ChatTemplate::new("{% for %}", String::new(), String::new()).is_err());
    }
}
