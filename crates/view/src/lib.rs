//! Everything that is drawn or written as HTML: pages, charts, pictures of teams.
//!
//! One measure of text ([`measure`]), one SVG builder ([`svg`]), one scale ([`scale`]), one frame for charts ([`frame`]), one
//! layout of layered graphs ([`graph`]), one stylesheet (`style.css`), and templates for pages (`templates/`). Runs are drawn
//! from their traces; every other page takes plain data that the crate that owns the numbers fills in.
//!
//! Texts of models, tasks and files are untrusted. They reach a page only through [`svg::Element`], through a template,
//! both of which escape them, or through [`markdown`], which writes its own tags.

pub mod app;
pub mod evaluation;
pub mod frame;
pub mod graph;
pub mod markdown;
pub mod markup;
pub mod measure;
mod page;
pub mod run;
pub mod scale;
pub mod study;
pub mod svg;
pub mod table;
pub mod tags;
pub mod training;
pub mod words;
pub mod worth;
