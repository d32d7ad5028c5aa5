//! The forms in which a trace leaves: for other tools ([`schema`], [`jsonl`], [`otlp`]) and for people ([`svg`],
//! [`html`]).

mod credit;
pub mod html;
pub mod index;
pub mod jsonl;
mod layout;
mod markdown;
mod markup;
pub mod otlp;
pub mod schema;
pub mod svg;
mod timeline;

pub use markdown::{COPY_JS, MARKDOWN_CSS, markdown};
pub use markup::escape;
