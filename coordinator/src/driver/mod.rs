//! The one task that owns the scheduler: hands it what happens, does what it says. Waits for
//! nobody: what a worker or a client does not take at once is that worker's or client's problem.

mod client;
mod clients;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use client::{Admission, OUTPUT};

use crate::links::{LinkEvent, Session};
use crate::scheduler::{Action, Event, Patience, Scheduler, SequenceId, SpecOptions, WorkerId};
use crate::telemetry::Observer;
use clients::{ClientEvent, Clients};
use proto::v1::{DraftCommand, TargetCommand};
use report::Report;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// At most so much is taken in before the scheduler says what to do about it.
const EVENTS_PER_TURN: usize = 256;

/// Runs the requests that come through `admissions`.
#[derive(Debug)]
pub(crate) struct Driver {
    scheduler: Scheduler,
    clients: Clients,
    target: Option<Session<TargetCommand>>,
    drafts: Vec<Option<Session<DraftCommand>>>,
    events: mpsc::Receiver<LinkEvent>,
    admissions: mpsc::Receiver<Admission>,
    next_id: SequenceId,
    report: Report,
    observer: Observer,
}

fn is_for_client(action: &Action) -> bool {
    match action {
        Action::SendTarget(_) | Action::ResetTarget | Action::SendDraft(..) => false,
        Action::Deliver(..) | Action::Finish(..) | Action::Fail(..) => true,
    }
}

impl Driver {
    /// A driver over links that report to `events`. It gives a client up that takes nothing for as
    /// long as `slow_client`.
    pub(crate) fn new(
        patience: Patience,
        options: SpecOptions,
        slow_client: Duration,
        events: mpsc::Receiver<LinkEvent>,
        admissions: mpsc::Receiver<Admission>,
        observer: Observer,
    ) -> Self {
        Self {
            scheduler: Scheduler::new(patience, options),
            clients: Clients::new(slow_client),
            target: None,
            drafts: Vec::new(),
            events,
            admissions,
            next_id: 1,
            report: Report::default(),
            observer,
        }
    }

    /// Runs until nobody can ask for anything any more, and all that was asked for is answered.
    pub(crate) async fn run(mut self) {
        let mut asked = true;
        while asked || !self.clients.is_empty() {
            let now = Instant::now();
            let deadline = self.scheduler.deadline(now.into_std());
            let deadline = deadline.map(Instant::from_std);
            let deadline = deadline.into_iter().chain(self.report.due()).min();
            tokio::select! {
                Some(event) = self.events.recv() => self.link_event(event),
                admission = self.admissions.recv(), if asked => match admission {
                    Some(admission) => self.admit(admission),
                    None => asked = false,
                },
                Some(event) = self.clients.next() => self.client_event(event),
                () = tokio::time::sleep_until(deadline.unwrap_or(now)), if deadline.is_some() => {}
            }
            // All that is at hand goes into one round.
            for _ in 0..EVENTS_PER_TURN {
                match self.events.try_recv() {
                    Ok(event) => self.link_event(event),
                    Err(_) => break,
                }
            }
            self.act();
            self.report();
        }
        tracing::debug!(
            stale_messages = self.scheduler.stale_messages(),
            malformed_proposals = self.scheduler.malformed_proposals(),
            "driver ends"
        );
    }

    /// Logs what speculation did, where that is due.
    fn report(&mut self) {
        self.observer.show(&self.scheduler);
        let now = Instant::now();
        self.report.see(self.scheduler.committed_tokens(), now);
        if let Some(line) = self.report.line(|| self.scheduler.counters(), now) {
            tracing::info!("{line}");
        }
    }

    fn handle(&mut self, event: Event) {
        match &event {
            Event::Target(said) => self.observer.heard_target(said),
            Event::Draft(worker, said) => self.observer.heard_draft(*worker, said),
            Event::TargetUp { .. } | Event::TargetDown => self.observer.target_lost(),
            Event::ClientGone(id) => self.observer.given_up(*id),
            _ => {}
        }
        self.scheduler.handle(event, Instant::now().into_std());
    }

    fn admit(&mut self, admission: Admission) {
        let Admission {
            caller, request, ..
        } = &admission;
        self.observer.admitted(self.next_id, caller, request);
        for (id, choice) in self.clients.add(self.next_id, admission) {
            self.next_id = id + 1;
            self.handle(Event::Admit(id, choice));
        }
    }

    fn handle_all(&mut self, ids: Vec<SequenceId>, event: impl Fn(SequenceId) -> Event) {
        for id in ids {
            self.handle(event(id));
        }
    }

    fn client_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Gone(id) => {
                let running = self.clients.remove(id);
                self.handle_all(running, Event::ClientGone);
            }
            ClientEvent::Cut(id, cut) => {
                let running = self.clients.cut(id, cut);
                self.handle_all(running, Event::ClientGone);
            }
            ClientEvent::Room(id) => {
                let ready = self.clients.room(id);
                self.handle_all(ready, Event::ClientReady);
            }
            ClientEvent::Served => {}
        }
    }

    fn link_event(&mut self, event: LinkEvent) {
        let event = match event {
            LinkEvent::TargetUp {
                session,
                limits,
                replaced,
            } => {
                self.target = Some(session);
                Event::TargetUp { limits, replaced }
            }
            LinkEvent::TargetDown => {
                self.target = None;
                Event::TargetDown
            }
            LinkEvent::Target(event) => Event::Target(event),
            LinkEvent::DraftUp(worker, session, limits) => {
                if worker >= self.drafts.len() {
                    self.drafts.resize_with(worker + 1, || None);
                }
                self.drafts[worker] = Some(session);
                Event::DraftUp(worker, limits)
            }
            LinkEvent::DraftDown(worker) => {
                self.drafts[worker] = None;
                Event::DraftDown(worker)
            }
            LinkEvent::DraftRetired(worker) => {
                self.drafts[worker] = None;
                Event::DraftRetired(worker)
            }
            LinkEvent::Draft(worker, event) => Event::Draft(worker, event),
        };
        self.handle(event);
    }

    /// Does what is to be done, until there is nothing more.
    fn act(&mut self) {
        loop {
            let mut actions = self.scheduler.advance(Instant::now().into_std());
            if actions.is_empty() {
                return;
            }
            // Workers first: they stand still until they hear, and clients do not.
            actions.sort_by_key(is_for_client);
            for action in actions {
                self.perform(action);
            }
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::SendTarget(command) => self.send_target(*command),
            Action::ResetTarget => {
                self.observer.target_lost();
                if let Some(session) = self.target.take() {
                    session.reset();
                }
            }
            Action::SendDraft(worker, command) => self.send_draft(worker, command),
            Action::Deliver(id, delta) => {
                self.observer.delivered(id, &delta);
                let held = self.clients.deliver(id, delta);
                self.handle_all(held, Event::ClientFull);
            }
            Action::Finish(id, summary) => {
                let told = self.observer.finished(id, &summary);
                let held = self.clients.finish(id, summary, told);
                self.handle_all(held, Event::ClientFull);
            }
            Action::Fail(id, error) => {
                self.observer.failed(id, &error);
                let others = self.clients.fail(id, error);
                self.handle_all(others, Event::ClientGone);
            }
        }
    }

    /// A target that lets commands pile up is lost: its link will say so, the scheduler hears it now.
    fn send_target(&mut self, mut command: TargetCommand) {
        self.observer.sending_target(&mut command);
        if let Some(session) = self.target.take_if(|session| !session.send(command)) {
            tracing::warn!("target takes no commands");
            session.reset();
            self.handle(Event::TargetDown);
        }
    }

    fn send_draft(&mut self, worker: WorkerId, mut command: DraftCommand) {
        self.observer.sending_draft(&mut command);
        if let Some(session) = self.drafts[worker].take_if(|session| !session.send(command)) {
            tracing::warn!(worker, "draft worker takes no commands");
            session.reset();
            self.handle(Event::DraftDown(worker));
        }
    }
}
