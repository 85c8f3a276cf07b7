//! A view of a worker's load from outside: a stream of its own, as a second coordinator has one.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use proto::v1::{
    DraftCommand, TargetCommand, draft_client::DraftClient, target_client::TargetClient,
    target_event,
};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// Follows how many sequences a worker holds, of all coordinators.
#[derive(Debug)]
pub struct SequenceCount {
    count: watch::Receiver<Option<u32>>,
    follower: tokio::task::JoinHandle<()>,
}

impl Drop for SequenceCount {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl SequenceCount {
    /// Follows a target worker.
    ///
    /// # Errors
    /// Where it does not answer.
    #[expect(clippy::disallowed_methods, reason = "aborted by drop")]
    pub async fn of_target(url: &str) -> Result<Self> {
        let mut client = TargetClient::new(service::client::channel(url)?);
        let (commands, outgoing) = mpsc::channel::<TargetCommand>(1);
        let mut events = client
            .verify(ReceiverStream::new(outgoing))
            .await?
            .into_inner();
        let (update, count) = watch::channel(None);
        let follower = tokio::spawn(async move {
            while let Some(Ok(event)) = events.next().await {
                if let Some(target_event::Event::Load(load)) = event.event {
                    update.send_replace(Some(load.active_sequences));
                }
            }
            drop(commands);
        });
        Ok(Self { count, follower })
    }

    /// Follows a draft worker.
    ///
    /// # Errors
    /// Where it does not answer.
    #[expect(clippy::disallowed_methods, reason = "aborted by drop")]
    pub async fn of_draft(url: &str) -> Result<Self> {
        let mut client = DraftClient::new(service::client::channel(url)?);
        let (commands, outgoing) = mpsc::channel::<DraftCommand>(1);
        let mut events = client
            .propose(ReceiverStream::new(outgoing))
            .await?
            .into_inner();
        let (update, count) = watch::channel(None);
        let follower = tokio::spawn(async move {
            while let Some(Ok(event)) = events.next().await {
                if let Some(load) = event.load {
                    update.send_replace(Some(load.active_sequences));
                }
            }
            drop(commands);
        });
        Ok(Self { count, follower })
    }

    /// Waits until the worker holds `count` sequences.
    ///
    /// # Errors
    /// Where it does not within `patience`.
    pub async fn reaches(&mut self, count: u32, patience: Duration) -> Result<()> {
        let reached = self.count.wait_for(|now| *now == Some(count));
        tokio::time::timeout(patience, reached)
            .await
            .with_context(|| format!("the worker does not come to {count} sequences"))?
            .map(|_| ())
            .context("the worker is gone")
    }
}
