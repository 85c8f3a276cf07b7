//! A model's tokens, and the grammars over them.

use crate::error::one_line;
use crate::lexer_work;
use crate::session::{Session, guarded};
use crate::tokenizer_json;
use crate::{Form, GrammarError, VocabularyError};
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{ParserFactory, TokenParser};
use speculation::{Constraint, TokenId};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Longer tokens cannot be held by the library's trie; no text needs them.
const MAX_TOKEN_LEN: usize = 1000;

/// What the library allows, less what it adds.
const MAX_TOKENS: usize = (1 << 24) - 2;

/// The library follows rules and definitions by recursion, and a source of
/// [`crate::MAX_SOURCE_LEN`] leads it 80,000 deep, which takes a third of this. Only what is used of
/// a stack takes memory.
const COMPILE_STACK: usize = 1 << 29;

/// What a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// These bytes of text, not necessarily whole characters.
    Text(Vec<u8>),
    /// A sign to or from the model, never text. A grammar may demand it by this name.
    Special(String),
    /// Nothing: an id that is not used.
    Unused,
}

/// Compiles forms into constraints on the tokens of one model. Cheap to clone.
#[derive(Clone)]
pub struct Grammars {
    shared: Arc<Shared>,
}

/// What all constraints on the tokens of a model share.
pub(crate) struct Shared {
    factory: ParserFactory,
    /// Ids of tokens: 0 to this number, less one.
    pub(crate) size: usize,
    /// The ids that end a text. The library does not know them.
    pub(crate) end_tokens: Vec<TokenId>,
}

impl Grammars {
    /// Grammars over `tokens`, in the order of their ids; any of `end_tokens` ends a text. Slow:
    /// about a second for 150,000 tokens.
    ///
    /// # Errors
    /// Where there are no end tokens, or ids beyond the tokens.
    pub fn new(tokens: Vec<Token>, end_tokens: &[TokenId]) -> Result<Self, VocabularyError> {
        let size = tokens.len();
        if size > MAX_TOKENS {
            let reason = format!("{size} tokens, at most {MAX_TOKENS} are supported");
            return Err(VocabularyError(reason));
        }
        if end_tokens.is_empty() {
            let reason = "no token ends a text, so no text could ever match a grammar";
            return Err(VocabularyError(reason.to_owned()));
        }
        let beyond = |id: &&TokenId| usize::try_from(**id).map_or(true, |id| id >= size);
        if let Some(id) = end_tokens.iter().find(beyond) {
            let reason = format!("end token {id} is none of the {size} tokens");
            return Err(VocabularyError(reason));
        }
        let factory = catch_unwind(AssertUnwindSafe(|| {
            let mut factory = ParserFactory::new_simple(&environment(tokens, end_tokens))?;
            factory.quiet().limits_mut().verbose_errors = false;
            Ok(factory)
        }))
        .map_err(|error| VocabularyError(format!("tokens: {}", one_line(error))))?;
        Ok(Self {
            shared: Arc::new(Shared {
                factory,
                size,
                end_tokens: end_tokens.to_vec(),
            }),
        })
    }

    /// Grammars over the tokens of a Hugging Face `tokenizer.json`: byte-level BPE as of GPT-2, or
    /// BPE with byte fallback. Ids are 0 to `size`, less one; those not mentioned are unused.
    ///
    /// # Errors
    /// Those of [`Grammars::new`], and where the document is malformed, of another kind, or has ids
    /// beyond `size`.
    pub fn from_tokenizer_json(
        json: &[u8],
        size: usize,
        end_tokens: &[TokenId],
    ) -> Result<Self, VocabularyError> {
        Self::new(tokenizer_json::tokens(json, size)?, end_tokens)
    }

    /// The constraint that a text be of this form from its first token on.
    ///
    /// It forbids by minus infinity. All end tokens are allowed where the text is complete, and no
    /// others where nothing more can follow. Special tokens are allowed where the grammar names
    /// them. Ids beyond the tokens never are. After an end token no token can be pushed; the mask
    /// there still allows end tokens, so that every position has a law.
    ///
    /// Slow: milliseconds, for large sources seconds. Call it where blocking is allowed. It
    /// compiles on a thread of its own, with a stack that suits the library's recursion.
    ///
    /// The work is bounded by the source's length ([`crate::MAX_SOURCE_LEN`]) and by the library's
    /// own limits as they come: 500,000 symbols of grammar, 1,000,000 units of fuel for the lexer
    /// at first and 200,000 per mask, 250,000 states of the lexer, 2,000 Earley items per row,
    /// 50,000 per mask. A mask that would exceed them is an error. One limit is ours: a few thousand
    /// parts in a row that may each be left out, as in `a?b?c?`, are refused.
    ///
    /// # Errors
    /// Says in one line what is wrong with the source, or which limit it exceeds.
    pub fn compile(&self, form: &Form) -> Result<Box<dyn Constraint>, GrammarError> {
        Ok(Box::new(self.session(form)?))
    }

    pub(crate) fn session(&self, form: &Form) -> Result<Session, GrammarError> {
        let grammar = form.translate()?;
        let parser = std::thread::scope(|scope| {
            let compile = || self.shared.parser(grammar);
            let builder = std::thread::Builder::new().name("grammar-compile".to_owned());
            let thread = builder
                .stack_size(COMPILE_STACK)
                .spawn_scoped(scope, compile)
                .map_err(|error| form.error(format!("no thread to compile on: {error}")))?;
            let parser = thread.join();
            parser
                .unwrap_or_else(|_| Err("internal error".to_owned()))
                .map_err(|reason| form.error(reason))
        })?;
        Ok(Session::new(Arc::clone(&self.shared), parser))
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars")
            .field("size", &self.shared.size)
            .field("end_tokens", &self.shared.end_tokens)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn parser(&self, grammar: TopLevelGrammar) -> Result<TokenParser, String> {
        let parser = guarded(|| {
            let environment = Some(self.factory.tok_env().clone());
            let limits = self.factory.limits().clone();
            let (grammar, lexer) = GrammarInit::Serialized(grammar)
                .to_internal(environment, limits)
                .map_err(one_line)?;
            lexer.check_rollback().map_err(one_line)?;
            lexer_work::check(lexer.regex_builder.exprset())?;
            let init = GrammarInit::Internal(grammar, lexer);
            let parser = self.factory.create_parser_from_init_default(init);
            let mut parser = parser.map_err(one_line)?;
            parser.start_without_prompt();
            Ok(parser)
        });
        parser.map_err(|reason| in_our_words(&reason))
    }
}

/// What the library says, in terms that those who write a request have.
fn in_our_words(reason: &str) -> String {
    if reason.starts_with("oneOf constraints are not supported") {
        return "oneOf is supported only where the alternatives cannot overlap; use anyOf"
            .to_owned();
    }
    if reason.starts_with("rollback not supported") {
        return "stop= and max_tokens= are not supported; suffix= is".to_owned();
    }
    if reason.starts_with("lexer precomputation failed") {
        return "is too complex for the lexer".to_owned();
    }
    if reason.contains("missing special token prefix") {
        return "a special token is named, and this model has none that can be".to_owned();
    }
    // Its list of those that there are lacks some.
    let reason = reason.split("; following special tokens").next();
    reason.unwrap_or_default().to_owned()
}

/// The tokens as the library wants them. One more than there are stands for the end of the text
/// in its masks; the real end tokens are unknown to it, so that nothing but us allows them.
fn environment(mut tokens: Vec<Token>, end_tokens: &[TokenId]) -> TokEnv {
    for &id in end_tokens {
        tokens[id as usize] = Token::Unused;
    }
    let mut words: Vec<Vec<u8>> = tokens.into_iter().map(word).collect();
    let end = words.len() as TokenId;
    words.push(Vec::new());
    let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
    Arc::new(ApproximateTokEnv::new(trie))
}

fn word(token: Token) -> Vec<u8> {
    const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
    match token {
        Token::Special(name) if name.len() < MAX_TOKEN_LEN => {
            let mut word = vec![MARKER];
            word.extend(name.into_bytes());
            word
        }
        // The marker is a byte that no UTF-8 has.
        Token::Text(bytes) if bytes.len() <= MAX_TOKEN_LEN && !bytes.contains(&MARKER) => bytes,
        Token::Text(_) | Token::Special(_) | Token::Unused => Vec::new(),
    }
}
