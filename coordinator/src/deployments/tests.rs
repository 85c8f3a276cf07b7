use super::*;
use crate::telemetry::{Board, Peer, PeerState};
use crate::testing;

/// A worker, which the test connects and loses.
struct Worker {
    publish: watch::Sender<Option<Arc<Model>>>,
    admissions: mpsc::Sender<Admission>,
    board: Board,
    _admitted: mpsc::Receiver<Admission>,
}

impl Worker {
    fn new() -> Self {
        let (admissions, admitted) = mpsc::channel(1);
        Self {
            publish: watch::channel(None).0,
            admissions,
            board: Board::default(),
            _admitted: admitted,
        }
    }

    /// It connects, and its model is `name`.
    fn serves(&self, name: &str) {
        let mut model = testing::model();
        name.clone_into(&mut model.name);
        self.publish.send_replace(Some(Arc::new(model)));
        let peer = Peer {
            address: "http://w:1".to_owned(),
            model: name.to_owned(),
            state: PeerState::Serving,
        };
        self.board.put(None, peer);
    }

    fn lost(&self) {
        self.publish.send_replace(None);
        self.board.state(None, PeerState::Disconnected);
    }

    fn is(&self, found: Result<Found, Error>) -> bool {
        found.is_ok_and(|(_, admissions)| admissions.same_channel(&self.admissions))
    }
}

/// A target and two draft workers, none of which is connected.
fn deployments() -> (Deployments, Worker, [Worker; 2]) {
    let (target, drafts) = (Worker::new(), [Worker::new(), Worker::new()]);
    let served = target.publish.subscribe();
    let deployments = Deployments::new(served, target.admissions.clone(), target.board.subscribe());
    for (number, draft) in drafts.iter().enumerate() {
        let (served, health) = (draft.publish.subscribe(), draft.board.subscribe());
        deployments.add(number, served, draft.admissions.clone(), health);
    }
    (deployments, target, drafts)
}

fn class(found: Result<Found, Error>) -> Class {
    found.expect_err("none").class
}

#[test]
fn a_name_is_that_of_a_draft_or_of_the_target_and_none_is_the_targets() {
    let (deployments, target, drafts) = deployments();
    target.serves("big");
    drafts[1].serves("small");
    assert!(target.is(deployments.find("")));
    assert!(target.is(deployments.find("big")));
    assert!(drafts[1].is(deployments.find("small")));
    let error = deployments.find("other").expect_err("unknown");
    assert_eq!(error.class, Class::NotFound);
    assert_eq!(
        error.message,
        "there is no model `other`, only `big`, `small`"
    );
}

#[test]
fn the_target_goes_before_drafts_of_its_name_also_while_it_is_lost() {
    let (deployments, target, drafts) = deployments();
    drafts[0].serves("same");
    assert_eq!(class(deployments.find("same")), Class::Unavailable);
    target.serves("same");
    assert!(target.is(deployments.find("same")));
    assert_eq!(deployments.models().len(), 1);
    target.lost();
    assert_eq!(class(deployments.find("same")), Class::Unavailable);
    assert!(deployments.models().is_empty());
}

#[test]
fn of_two_workers_with_one_model_the_first_that_is_there_answers() {
    let (deployments, target, drafts) = deployments();
    target.serves("big");
    drafts[0].serves("small");
    drafts[1].serves("small");
    assert_eq!(deployments.models().len(), 2, "each name once");
    assert!(drafts[0].is(deployments.find("small")));
    drafts[0].lost();
    assert!(drafts[1].is(deployments.find("small")));
    drafts[1].lost();
    assert_eq!(class(deployments.find("small")), Class::Unavailable);
    drafts[0].serves("small");
    assert!(drafts[0].is(deployments.find("small")));
    deployments.remove(0);
    deployments.remove(1);
    assert_eq!(class(deployments.find("small")), Class::NotFound);
}
