//! Models that are loaded when they are first asked: a team that uses one capacity loads one model.

use super::model::{Card, LocalError, LocalModel, PromptForm};
use crate::error::WorkersError;
use crate::models;
use lemon_exec::worker::{AskError, Identity};
use lemon_model::{ModelFiles, check_gguf};
use lemon_trace::FailureKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};

type Load = Box<dyn Fn() -> Result<LocalModel, WorkersError> + Send + Sync>;

/// A model that is loaded once, when it is first asked.
pub struct LazyModel {
    form: PromptForm,
    load: Load,
    loaded: OnceLock<Result<LocalModel, WorkersError>>,
}

impl LazyModel {
    /// A model that `load` loads. `form` is known before.
    pub fn new(form: PromptForm, load: impl Fn() -> Result<LocalModel, WorkersError> + Send + Sync + 'static) -> Self {
        LazyModel { form, load: Box::new(load), loaded: OnceLock::new() }
    }

    /// How a request becomes a prompt.
    pub fn form(&self) -> PromptForm {
        self.form
    }

    /// The model. The first call loads it, which may take seconds.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn load(&self) -> Result<&LocalModel, &WorkersError> {
        self.loaded.get_or_init(|| (self.load)()).as_ref()
    }

    /// The model, loaded on a thread of its own so that other calls go on meanwhile.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<&LocalModel, AskError> {
        let failed = |fact: String| AskError::free(FailureKind::Refused, fact);
        if self.loaded.get().is_none() {
            let model = self.clone();
            let loaded = tokio::task::spawn_blocking(move || model.load().map(drop).map_err(WorkersError::clone)).await;
            loaded
                .map_err(|error| failed(format!("loading the model broke off: {error}")))?
                .map_err(|it| failed(it.fact))?;
        }
        self.load().map_err(|error| failed(error.fact.clone()))
    }

    /// Everything about it that determines a reply, for the reuse key. To compute it loads the model.
    pub(crate) fn identity(self: Arc<Self>) -> Identity {
        Identity::lazy(move || match self.load() {
            Ok(model) => model.identity(),
            // Such a model gives no replies that could be reused.
            Err(error) => format!("not loaded: {error}"),
        })
    }
}

impl From<LocalModel> for LazyModel {
    fn from(model: LocalModel) -> Self {
        LazyModel::new(model.form, move || Ok(model.clone()))
    }
}

/// Checks what can be checked of a model's folder without loading it, and says how it wants to be asked.
///
/// # Errors
/// A file is missing or malformed.
pub(crate) fn check(folder: &Path) -> Result<PromptForm, LocalError> {
    if ModelFiles::Disk(folder).gguf().is_some() {
        check_gguf(folder)?;
        return Ok(PromptForm::Chat);
    }
    let unusable = |name: &str, fact: String| LocalError::File { path: folder.join(name), fact };
    if let Some(missing) = models::missing(folder) {
        return Err(unusable(&missing, "is missing".to_owned()));
    }
    models::read_config(folder).map_err(|fact| unusable(models::CONFIG, fact))?;
    Ok(Card::read(folder)?.prompt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::WorkersErrorKind;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_model_is_loaded_once_and_not_before_it_is_asked() {
        let loads = Arc::new(AtomicUsize::new(0));
        let counted = loads.clone();
        let model = Arc::new(LazyModel::new(PromptForm::Short, move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Err(WorkersError::new("weights.bin: 3 bytes instead of 4").kind(WorkersErrorKind::Model))
        }));
        let identity = model.clone().identity();
        assert_eq!((model.form(), loads.load(Ordering::SeqCst)), (PromptForm::Short, 0));
        assert_eq!(identity.as_str(), "not loaded: weights.bin: 3 bytes instead of 4");
        assert!(model.load().is_err_and(|error| error.kind == WorkersErrorKind::Model));
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_model_that_cannot_be_loaded_is_reported_as_such() {
        let model =
            Arc::new(LazyModel::new(PromptForm::Chat, || Err(WorkersError::new("model.safetensors is cut off"))));
        let error = model.ready().await.err().unwrap();
        assert_eq!(
            (error.failure.kind, error.failure.message.as_str()),
            (FailureKind::Refused, "model.safetensors is cut off")
        );
    }

    #[test]
    fn a_folder_is_checked_without_loading_it() {
        let folder = tempfile::tempdir().unwrap();
        let says = |words: &str| {
            let fact = check(folder.path()).unwrap_err().to_string();
            assert!(fact.contains(words), "{fact}");
        };
        says("config.json: is missing");
        for name in [models::CONFIG, models::TOKENIZER, models::WEIGHTS] {
            std::fs::write(folder.path().join(name), "{}").unwrap();
        }
        says("config.json: ");
    }
}
