//! Grammars of a model's tokens, compiled off the threads that serve.

use crate::Fault;
use engine::Vocabulary;
use grammar::{Form, Grammars};
use speculation::Constraint;
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;

/// Grammars that are compiled at once: a slow one must not hold up all others, and many must not
/// take the processor from the model.
const COMPILERS: usize = 2;

/// Compiles what texts must match, for one model.
#[derive(Debug, Clone)]
pub(crate) struct Structured {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    vocabulary: Arc<Vocabulary>,
    /// Made when the first request asks: it takes time and memory that many workers never need.
    grammars: OnceLock<Result<Grammars, String>>,
    compilers: Semaphore,
}

impl Structured {
    pub(crate) fn new(vocabulary: Arc<Vocabulary>) -> Self {
        Self {
            shared: Arc::new(Shared {
                vocabulary,
                grammars: OnceLock::new(),
                compilers: Semaphore::new(COMPILERS),
            }),
        }
    }

    /// Compiles `form`.
    ///
    /// # Errors
    /// What is wrong with it, in the name of the request's field.
    pub(crate) async fn compile(&self, form: Form) -> Result<Box<dyn Constraint>, Fault> {
        let shared = Arc::clone(&self.shared);
        let _turn = self.shared.compilers.acquire().await;
        let compiling = tokio::task::spawn_blocking(move || {
            let field = field(&form);
            let compiled = shared
                .grammars()
                .and_then(|grammars| grammars.compile(&form).map_err(|error| error.to_string()));
            compiled.map_err(|detail| Fault::refused(field, detail))
        });
        let failed = |_| Fault::refused("structured", "the grammar could not be compiled");
        compiling.await.map_err(failed)?
    }
}

impl Shared {
    fn grammars(&self) -> Result<&Grammars, String> {
        let grammars = self.grammars.get_or_init(|| {
            let Vocabulary {
                tokenizer_json,
                size,
                eos_ids,
                ..
            } = &*self.vocabulary;
            Grammars::from_tokenizer_json(tokenizer_json, *size, eos_ids)
                .map_err(|error| format!("this model's tokens cannot be constrained: {error}"))
        });
        grammars.as_ref().map_err(Clone::clone)
    }
}

/// The request's field that `form` came from.
fn field(form: &Form) -> &'static str {
    match form {
        Form::JsonSchema(_) => "structured.json_schema",
        Form::Regex(_) => "structured.regex",
        Form::Lark(_) => "structured.lark",
        Form::JsonObject => "structured.json_object",
    }
}
