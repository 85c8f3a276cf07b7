//! An answer as server-sent events.

use super::answer::{Form, Head};
use super::bodies::StreamOptions;
use super::error::Failure;
use super::events::Events;
use super::stats::Tally;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use proto::v1::generate_response::Event;
use std::time::Duration;

/// How long a failure may take that still becomes the status of the response. After it the response
/// begins, silent as it is, and a failure comes in the stream.
const BEGIN: Duration = Duration::from_secs(5);

/// How often a silent stream shows that it lives.
const PING: Duration = Duration::from_secs(15);

/// Ends a stream that is whole.
const DONE: &str = "[DONE]";

/// Streams `events`. The response begins with the first of them, or when that takes long.
///
/// # Errors
/// What came first, where that is a failure.
pub(super) async fn respond<F: Form>(
    mut events: Events,
    head: Head,
    form: F,
    options: StreamOptions,
) -> Result<Response, Failure> {
    let first = tokio::time::timeout(BEGIN, events.next()).await;
    let first = first.ok().flatten().transpose()?;
    let pieces = Pieces {
        events,
        first,
        form,
        head,
        tally: Tally::default(),
        counted: options.include_usage.unwrap_or_default(),
        stage: Stage::Choices,
    };
    let events = stream::unfold(pieces, |mut pieces| async {
        let event = pieces.next().await?;
        Some((event, pieces))
    });
    let keep_alive = KeepAlive::new().interval(PING);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

/// How far a stream has come.
enum Stage {
    /// The choices are under way.
    Choices,
    /// They have ended; the counts follow.
    Counts,
    /// The end follows.
    End,
    /// Nothing follows.
    Over,
}

/// The pieces of an answer, one after the other.
struct Pieces<F> {
    events: Events,
    /// Came before the response began.
    first: Option<(usize, Event)>,
    form: F,
    head: Head,
    tally: Tally,
    /// True where the stream ends with the counts of tokens.
    counted: bool,
    stage: Stage,
}

/// A piece as it is sent, or that it cannot be written, which no piece of ours can fail to.
type Sent = Result<sse::Event, axum::Error>;

impl<F: Form> Pieces<F> {
    async fn next(&mut self) -> Option<Sent> {
        loop {
            match self.stage {
                Stage::Choices => match self.choice().await {
                    Some(sent) => return Some(sent),
                    None if self.counted => self.stage = Stage::Counts,
                    None => self.stage = Stage::End,
                },
                Stage::Counts => {
                    self.stage = Stage::End;
                    let piece = self.head.over::<F::Piece>(F::OBJECTS[1], Vec::new());
                    return Some(sse::Event::default().json_data(piece.counted(&self.tally)));
                }
                Stage::End => {
                    self.stage = Stage::Over;
                    return Some(Ok(sse::Event::default().data(DONE)));
                }
                Stage::Over => return None,
            }
        }
    }

    /// A piece of a choice, or the failure that ends the stream; `None` when all choices have ended.
    async fn choice(&mut self) -> Option<Sent> {
        loop {
            let event = match self.first.take() {
                Some(first) => Ok(first),
                None => self.events.next().await?,
            };
            let piece = match event {
                Ok((choice, Event::Delta(delta))) => self.form.piece(choice, delta),
                Ok((choice, Event::Finished(ended))) => {
                    self.tally.add(&ended, self.events.is_first(choice));
                    Some(self.form.end(choice, &ended))
                }
                Err(failure) => {
                    self.stage = Stage::Over;
                    return Some(sse::Event::default().json_data(failure.body()));
                }
            };
            if let Some(piece) = piece {
                return Some(self.sent(piece));
            }
        }
    }

    fn sent(&self, piece: F::Piece) -> Sent {
        let piece = self.head.over(F::OBJECTS[1], vec![piece]);
        let event = sse::Event::default();
        if self.counted {
            event.json_data(piece.counted_later())
        } else {
            event.json_data(piece)
        }
    }
}
