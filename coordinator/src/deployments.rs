//! The models that can be asked for: the target's, and those of draft workers, which answer alone.
//!
//! Each draft worker's model has a driver of its own, without drafts, as if that worker were a target.
//! So nothing of the target's requests waits for it.

use crate::driver::Admission;
use crate::links::ServedModel;
use crate::model::Model;
use crate::scheduler::WorkerId;
use crate::telemetry::Workers;
use proto::v1::ModelRole;
use service::{Class, Error};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};

/// A model, and where admitted requests for it go.
pub(crate) type Found = (Arc<Model>, mpsc::Sender<Admission>);

/// All models. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Deployments {
    target: Deployment,
    /// By worker, so that of two with one model the first answers.
    drafts: Arc<Mutex<BTreeMap<WorkerId, Deployment>>>,
}

/// A worker whose model answers.
#[derive(Debug, Clone)]
struct Deployment {
    /// Its model, while it is connected.
    served: ServedModel,
    /// Where requests go. Its driver ends with the last of these.
    admissions: mpsc::Sender<Admission>,
    /// What is known of it as a target.
    health: watch::Receiver<Workers>,
}

impl Deployment {
    /// The model while it is connected.
    fn model(&self) -> Option<Arc<Model>> {
        self.served.borrow().clone()
    }

    /// The model's name, also while the worker is lost; `None` where it was never connected.
    fn name(&self) -> Option<String> {
        let live = self.model().map(|model| model.name.clone());
        live.or_else(|| {
            let health = self.health.borrow();
            let last = health.target.as_ref()?.model.clone();
            (!last.is_empty()).then_some(last)
        })
    }

    fn found(&self) -> Option<Found> {
        Some((self.model()?, self.admissions.clone()))
    }
}

impl Deployments {
    /// The target's model alone, which is `served`. Requests for it go to `admissions`.
    pub(crate) fn new(
        served: ServedModel,
        admissions: mpsc::Sender<Admission>,
        health: watch::Receiver<Workers>,
    ) -> Self {
        let target = Deployment {
            served,
            admissions,
            health,
        };
        Self {
            target,
            drafts: Arc::default(),
        }
    }

    /// The target's model.
    pub(crate) fn target(&self) -> ServedModel {
        self.target.served.clone()
    }

    /// Takes in the model of a draft worker.
    pub(crate) fn add(
        &self,
        worker: WorkerId,
        served: ServedModel,
        admissions: mpsc::Sender<Admission>,
        health: watch::Receiver<Workers>,
    ) {
        let draft = Deployment {
            served,
            admissions,
            health,
        };
        self.drafts().insert(worker, draft);
    }

    /// Takes no more requests for the model of a draft worker. Those that run go on.
    pub(crate) fn remove(&self, worker: WorkerId) {
        self.drafts().remove(&worker);
    }

    /// The model that a request means by `name`: the target's where that is empty. The target goes
    /// before drafts of its name.
    ///
    /// # Errors
    /// [`Class::NotFound`] where there is none of that name. [`Class::Unavailable`] where its worker is not
    /// connected, and before the target's name is known.
    pub(crate) fn find(&self, name: &str) -> Result<Found, Error> {
        let target = self.target.name();
        if name.is_empty() || target.as_deref().is_none_or(|target| target == name) {
            let lost = || Error::new(Class::Unavailable, "the target is not connected");
            return self.target.found().ok_or_else(lost);
        }
        let named: Vec<_> = self.named(name);
        if named.is_empty() {
            return Err(self.unknown(name));
        }
        let live = named.iter().find_map(Deployment::found);
        live.ok_or_else(|| {
            let message = format!("the draft worker of `{name}` is not connected");
            Error::new(Class::Unavailable, message)
        })
    }

    /// The models that can be asked for now: each name once.
    pub(crate) fn models(&self) -> Vec<(Arc<Model>, ModelRole)> {
        let target = self.target.model().map(|model| (model, ModelRole::Target));
        let own = self.target.name();
        let mut models: Vec<_> = target.into_iter().collect();
        for model in self.drafts().values().filter_map(Deployment::model) {
            let of_target = own.as_deref().is_none_or(|name| name == model.name);
            if !of_target && !models.iter().any(|(known, _)| known.name == model.name) {
                models.push((model, ModelRole::Draft));
            }
        }
        models
    }

    /// The draft workers whose model has, or had, this name.
    fn named(&self, name: &str) -> Vec<Deployment> {
        let drafts = self.drafts();
        let named = drafts
            .values()
            .filter(|it| it.name().as_deref() == Some(name));
        named.cloned().collect()
    }

    fn unknown(&self, name: &str) -> Error {
        let models = self.models().into_iter();
        let names: Vec<_> = models
            .map(|(model, _)| format!("`{}`", model.name))
            .collect();
        let message = format!("there is no model `{name}`, only {}", names.join(", "));
        Error::new(Class::NotFound, message)
    }

    fn drafts(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Deployment>> {
        self.drafts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
