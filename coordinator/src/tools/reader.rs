//! Reads the calls in a text that grows piece by piece, wherever the pieces begin and end.
//!
//! Holds back what may still become a call, and white space, which is part of a call's syntax where
//! one is next to it. What turns out to be no call is text: nothing is lost. Each letter is read
//! once, so a call within a call that was no good is text as well.

use super::{Reading, Syntax, call};
use proto::v1::ToolCall;

/// What became certain.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Read {
    /// More text.
    pub(crate) text: String,
    /// More calls, each whole.
    pub(crate) calls: Vec<ToolCall>,
}

impl From<String> for Read {
    fn from(text: String) -> Self {
        let calls = Vec::new();
        Self { text, calls }
    }
}

/// Reads one text.
#[derive(Debug)]
pub(crate) struct Reader {
    reading: Reading,
    state: State,
    /// What is not certain yet.
    held: String,
    called: bool,
}

/// Where in the text it is.
#[derive(Debug)]
enum State {
    /// In text that ends with so many bytes of the opening.
    Text(usize),
    /// Behind the opening, before the JSON.
    Opened,
    /// In the JSON, which begins there in what is held.
    Json(usize, Nesting),
    /// Behind the JSON of these calls, and so many bytes of the closing.
    Closing(Vec<ToolCall>, usize),
    /// In text that can hold no call any more.
    Rest,
}

/// How deep in a JSON document.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Reader {
    /// Reads calls as `reading` says.
    pub(crate) fn new(reading: Reading) -> Self {
        Self {
            state: beginning(reading.syntax),
            reading,
            held: String::new(),
            called: false,
        }
    }

    /// True where there was a call.
    pub(crate) fn has_called(&self) -> bool {
        self.called
    }

    /// Reads on.
    pub(crate) fn push(&mut self, piece: &str) -> Read {
        let mut read = Read::default();
        for c in piece.chars() {
            self.step(c, &mut read);
        }
        read
    }

    /// The text ends. A call that is whole but for its closing counts.
    pub(crate) fn finish(&mut self) -> Read {
        let mut read = Read::default();
        match std::mem::replace(&mut self.state, State::Rest) {
            State::Closing(calls, _) => self.accept(calls, &mut read),
            _ if self.called && self.held.trim().is_empty() => self.held.clear(),
            _ => self.give_up(&mut read),
        }
        read
    }

    fn step(&mut self, c: char, read: &mut Read) {
        let syntax = self.reading.syntax;
        self.state = match std::mem::replace(&mut self.state, State::Rest) {
            State::Text(matched) => self.in_text(matched, c, read),
            State::Rest => {
                self.give_up(read);
                read.text.push(c);
                State::Rest
            }
            State::Opened if c == syntax.bracket() => {
                let at = self.held.len();
                self.in_json(at, Nesting::default(), c, read)
            }
            State::Opened if c.is_whitespace() || (c == ';' && self.is_between_calls()) => {
                self.held.push(c);
                State::Opened
            }
            State::Opened => self.reread(c, read),
            State::Json(at, nesting) => self.in_json(at, nesting, c, read),
            State::Closing(calls, matched) => self.in_closing(calls, matched, c, read),
        };
    }

    fn in_text(&mut self, matched: usize, c: char, read: &mut Read) -> State {
        let opening = self.reading.syntax.opening();
        if opening[matched..].starts_with(c) {
            self.held.push(c);
            let matched = matched + c.len_utf8();
            return if matched == opening.len() {
                State::Opened
            } else {
                State::Text(matched)
            };
        }
        if matched > 0 {
            self.give_up(read);
        }
        // Only its first letter can begin it again.
        if opening.starts_with(c) {
            self.held.push(c);
            return State::Text(c.len_utf8());
        }
        if c.is_whitespace() {
            self.held.push(c);
        } else {
            self.give_up(read);
            read.text.push(c);
        }
        State::Text(0)
    }

    fn in_json(&mut self, at: usize, mut nesting: Nesting, c: char, read: &mut Read) -> State {
        self.held.push(c);
        if !nesting.closes_with(c) {
            return State::Json(at, nesting);
        }
        let Some(calls) = call::parse(&self.held[at..], &self.reading) else {
            self.give_up(read);
            return after_text(self.reading.syntax);
        };
        if self.reading.syntax.closing().is_empty() {
            self.accept(calls, read);
            return beginning(self.reading.syntax);
        }
        State::Closing(calls, 0)
    }

    fn in_closing(
        &mut self,
        calls: Vec<ToolCall>,
        matched: usize,
        c: char,
        read: &mut Read,
    ) -> State {
        let closing = self.reading.syntax.closing();
        if closing[matched..].starts_with(c) {
            self.held.push(c);
            let matched = matched + c.len_utf8();
            if matched < closing.len() {
                return State::Closing(calls, matched);
            }
            self.accept(calls, read);
            return beginning(self.reading.syntax);
        }
        if matched == 0 && c.is_whitespace() {
            self.held.push(c);
            return State::Closing(calls, 0);
        }
        self.reread(c, read)
    }

    /// What is held is no call; `c` follows it.
    fn reread(&mut self, c: char, read: &mut Read) -> State {
        self.give_up(read);
        match after_text(self.reading.syntax) {
            State::Text(_) => self.in_text(0, c, read),
            state => {
                read.text.push(c);
                state
            }
        }
    }

    /// What is held is text.
    fn give_up(&mut self, read: &mut Read) {
        read.text += &std::mem::take(&mut self.held);
    }

    /// What is held is these calls.
    fn accept(&mut self, calls: Vec<ToolCall>, read: &mut Read) {
        self.held.clear();
        self.called |= !calls.is_empty();
        read.calls.extend(calls);
    }

    fn is_between_calls(&self) -> bool {
        self.reading.syntax == Syntax::Llama && self.called
    }
}

impl Nesting {
    /// Reads `c`; true where the document ends with it.
    fn closes_with(&mut self, c: char) -> bool {
        match c {
            _ if self.escaped => self.escaped = false,
            '\\' if self.in_string => self.escaped = true,
            '"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            '{' | '[' => self.depth += 1,
            '}' | ']' => {
                self.depth -= 1;
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

/// Where a text begins, and where it goes on after a call.
fn beginning(syntax: Syntax) -> State {
    match syntax {
        Syntax::Hermes | Syntax::Mistral => State::Text(0),
        Syntax::Llama => State::Opened,
    }
}

/// Where it goes on after what is no call.
fn after_text(syntax: Syntax) -> State {
    match syntax {
        Syntax::Hermes | Syntax::Mistral => State::Text(0),
        Syntax::Llama => State::Rest,
    }
}
