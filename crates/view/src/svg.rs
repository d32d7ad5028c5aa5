//! Writes SVG. Texts and attributes are escaped here, and nowhere else.

use crate::markup::{Markup, escape};
use std::fmt::Write;

/// An element that is being written. Its attributes stand in the order they were given.
#[derive(Debug, Clone)]
pub struct Element {
    tag: &'static str,
    attributes: String,
    body: String,
}

/// Begins an element.
pub fn element(tag: &'static str) -> Element {
    Element { tag, attributes: String::new(), body: String::new() }
}

impl Element {
    /// An attribute; its value is escaped.
    pub fn attribute(mut self, name: &'static str, value: &str) -> Element {
        self.attributes.push_str(&format!(" {name}=\"{}\"", escape(value)));
        self
    }

    /// A length or a place, to a tenth of a pixel.
    pub fn number(mut self, name: &'static str, value: f64) -> Element {
        self.attributes.push_str(&format!(" {name}=\"{value:.1}\""));
        self
    }

    /// The class; an empty one is left out.
    pub fn class(self, class: &str) -> Element {
        if class.is_empty() { self } else { self.attribute("class", class) }
    }

    /// Moves the element.
    pub fn moved(mut self, x: f64, y: f64) -> Element {
        self.attributes.push_str(&format!(" transform=\"translate({x:.1} {y:.1})\""));
        self
    }

    /// A text inside; it is escaped.
    pub fn text(mut self, text: &str) -> Element {
        self.body.push_str(&escape(text));
        self
    }

    /// Something inside.
    pub fn child(mut self, child: impl Into<Markup>) -> Element {
        self.body.push_str(&child.into().into_string());
        self
    }

    /// A tip that a browser shows where the pointer rests.
    pub fn title(self, tip: &str) -> Element {
        self.child(element("title").text(tip))
    }
}

impl From<Element> for Markup {
    fn from(Element { tag, attributes, body }: Element) -> Markup {
        // A line for each drawn thing: files can be compared, and texts stay beside each other.
        let end = if matches!(tag, "g" | "path" | "circle" | "defs" | "svg") { "\n" } else { "" };
        Markup::trusted(match body.is_empty() && !matches!(tag, "g" | "text") {
            true => format!("<{tag}{attributes}/>{end}"),
            false => format!("<{tag}{attributes}>{body}</{tag}>{end}"),
        })
    }
}

impl From<&Markup> for Markup {
    fn from(markup: &Markup) -> Markup {
        markup.clone()
    }
}

/// Which end of a text stands at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Its beginning.
    Start,
    Middle,
    End,
}

/// One line of text.
pub fn text(class: &str, (x, y): (f64, f64), anchor: Anchor, content: &str) -> Element {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let element = element("text").class(class).number("x", x).number("y", y);
    element.attribute("text-anchor", anchor).text(content)
}

/// A rectangle: its corner, and its width and height.
pub fn rect(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> Element {
    let element = element("rect").class(class).number("x", x).number("y", y);
    element.number("width", width).number("height", height)
}

pub fn circle(class: &str, (x, y): (f64, f64), radius: f64) -> Element {
    element("circle").class(class).number("cx", x).number("cy", y).number("r", radius)
}

/// A straight line.
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Element {
    Path::from(from).line(to).element(class)
}

/// A moved group.
pub fn group(x: f64, y: f64) -> Element {
    element("g").moved(x, y)
}

/// A picture of this size on a page that defines its colours.
pub fn picture(class: &str, (width, height): (f64, f64), label: &str) -> Element {
    let size = |name, value: f64| (name, format!("{value:.0}"));
    let picture = element("svg").class(class).attribute("viewBox", &format!("0 0 {width:.0} {height:.0}"));
    let picture = [size("width", width), size("height", height)]
        .into_iter()
        .fold(picture, |picture, (name, value)| picture.attribute(name, &value));
    picture.attribute("role", "img").attribute("aria-label", label)
}

/// A picture that stands alone, with its own style.
pub fn document(class: &str, size: (f64, f64), label: &str) -> Element {
    let picture = picture(class, size, label);
    Element { attributes: format!(" xmlns=\"http://www.w3.org/2000/svg\"{}", picture.attributes), ..picture }
}

/// How cards and lines of teams look, whatever the picture shows of them.
pub(crate) const TEAM_STYLE: &str = include_str!("team.css");

/// The style of a picture that stands alone.
pub(crate) fn style(css: &str) -> Markup {
    Markup::trusted(format!("\n<style>{css}</style>\n"))
}

/// The way of a line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(String);

impl Path {
    /// Begins somewhere.
    pub fn from((x, y): (f64, f64)) -> Path {
        Path(format!("M{x:.1} {y:.1}"))
    }

    fn with(mut self, part: std::fmt::Arguments) -> Path {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(part);
        self
    }

    /// Goes on elsewhere without a line.
    pub fn jump(self, (x, y): (f64, f64)) -> Path {
        self.with(format_args!("M{x:.1} {y:.1}"))
    }

    /// A straight line.
    pub fn line(self, (x, y): (f64, f64)) -> Path {
        self.with(format_args!("L{x:.1} {y:.1}"))
    }

    /// A level line.
    pub fn across(self, x: f64) -> Path {
        self.with(format_args!("H{x:.1}"))
    }

    /// An upright line.
    pub fn down(self, y: f64) -> Path {
        self.with(format_args!("V{y:.1}"))
    }

    /// A curve that leaves and arrives in the direction of its two handles.
    pub fn curve(self, leave: (f64, f64), arrive: (f64, f64), end: (f64, f64)) -> Path {
        self.with(format_args!(
            "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
            leave.0, leave.1, arrive.0, arrive.1, end.0, end.1
        ))
    }

    /// A dot, as wide as the line.
    pub fn dot(mut self) -> Path {
        self.0.push_str("h.01");
        self
    }

    /// Back to the beginning.
    pub fn close(mut self) -> Path {
        self.0.push('z');
        self
    }

    /// Another path, after this one.
    pub fn join(mut self, other: &Path) -> Path {
        self.0.push_str(&other.0);
        self
    }

    /// A straight line through points; `None` without any.
    pub fn through(points: impl IntoIterator<Item = (f64, f64)>) -> Option<Path> {
        let mut points = points.into_iter();
        let first = Path::from(points.next()?);
        Some(points.fold(first, Path::line))
    }

    /// An interval with a short bar at each end.
    pub fn whisker((low, high): (f64, f64), at: f64, is_upright: bool) -> Path {
        let place = |along: f64, side: f64| if is_upright { (at + side, along) } else { (along, at + side) };
        let bar = |path: Path, along: f64| path.jump(place(along, -3.0)).line(place(along, 3.0));
        bar(bar(Path::from(place(low, 0.0)).line(place(high, 0.0)), low), high)
    }

    /// Whether it leads nowhere.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The path as an element.
    pub fn element(&self, class: &str) -> Element {
        self.styled(element("path").class(class))
    }

    /// Gives the path to an element that has its other attributes.
    pub fn styled(&self, element: Element) -> Element {
        element.attribute("d", &self.0)
    }
}

/// A path that is part of the program.
pub(crate) fn fixed(class: &str, way: &'static str) -> Element {
    element("path").class(class).attribute("d", way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_attributes_are_escaped() {
        let check = |element: Element, expected: &str| assert_eq!(Markup::from(element).into_string(), expected);
        check(element("g").attribute("data-agent", "\"><b>"), "<g data-agent=\"&quot;&gt;&lt;b&gt;\"></g>\n");
        check(
            text("tick", (1.0, 2.25), Anchor::End, "a < b"),
            "<text class=\"tick\" x=\"1.0\" y=\"2.2\" text-anchor=\"end\">a &lt; b</text>",
        );
        check(line("grid", (0.0, 1.0), (2.0, 1.0)), "<path class=\"grid\" d=\"M0.0 1.0L2.0 1.0\"/>\n");
        check(
            circle("", (0.0, 0.0), 5.0).title("&"),
            "<circle cx=\"0.0\" cy=\"0.0\" r=\"5.0\"><title>&amp;</title></circle>\n",
        );
    }
}
