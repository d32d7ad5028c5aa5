//! What tells a model from every other, computed when it is first needed.

use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::{Arc, LazyLock};

type Compute = Box<dyn FnOnce() -> String + Send>;

/// Everything about a model that determines a reply, for the reuse key. Computing it may load the model.
#[derive(Clone)]
pub struct Identity(Arc<LazyLock<String, Compute>>);

impl Identity {
    /// An identity that `compute` gives when it is first needed.
    pub fn lazy(compute: impl FnOnce() -> String + Send + 'static) -> Self {
        Identity(Arc::new(LazyLock::new(Box::new(compute))))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Identity {
    fn from(text: T) -> Self {
        let text = text.into();
        Identity::lazy(move || text)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl PartialEq<&str> for Identity {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the text: to show it could load a model.
        f.write_str("Identity")
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
