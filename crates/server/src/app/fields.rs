//! The fields of an address: each may be given more than once.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;

/// The fields after the `?` of an address, in their order.
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// The first of this name.
    pub fn get<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// The first of this name, or nothing.
    pub fn text(&self, name: &str) -> String {
        self.all(name).next().unwrap_or_default().to_owned()
    }

    /// All of this name that say something.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let named = self.0.iter().filter(move |(other, value)| other == name && !value.is_empty());
        named.map(|(_, value)| value.as_str())
    }
}

impl<S: Sync> FromRequestParts<S> for Fields {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Fields(form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}
