//! One way to draw them all: a frame, lines with markers and bands, marked places, shaded spans, a legend in words above.
//! Knows nothing of what the figures mean.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    Cartesian2d, Circle, Cross, DrawingArea, EmptyElement, IntoDrawingArea, IntoFont, PathElement, Polygon,
    Rectangle, SVGBackend, Text, TriangleMarker,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, FontTransform, IntoTextStyle, RGBColor, TextStyle};

use crate::error::{LabError, Result};
use crate::figures::whole;
use crate::report::picture::colour::{INK, PAPER, RULE, SOFT, TARGETS};

/// Of a picture in documents and on wide screens, and of one on a phone: letters have the same size in both.
const WIDE: (u32, u32) = (760, 400);
const NARROW: (u32, u32) = (380, 360);
const FAMILY: &str = "sans-serif";

/// Room above the plot beside the rows of title, unit and legend.
const HEAD: i32 = 24;

/// The height of a row of the title, and of one of the legend.
const TITLE_ROW: i32 = 24;
const LEGEND_ROW: i32 = 20;

/// Room for a label on the way to the right.
const TICK: f64 = 34.0;

/// Half the end of a whisker, as a part of the way to the right.
const CAP: f64 = 0.006;

/// How wide a letter of size 1 is, about.
const LETTER: f64 = 0.52;

type Plot<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Places, RangedCoordf64>>;
type Sheet<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The way to the right, with the places that are named.
#[derive(Clone)]
struct Places {
    left: f64,
    right: f64,
    keys: Vec<f64>,
}

impl Ranged for Places {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.left..self.right).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.keys.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.left..self.right
    }
}

impl ValueFormatter<f64> for Places {}

/// A picture before it is drawn.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct Chart {
    /// What sort it is, for its file's name.
    pub(in crate::report) sort: &'static str,
    /// What it shows.
    pub(in crate::report) title: String,
    /// What goes upwards.
    pub(in crate::report) unit: &'static str,
    /// What goes to the right.
    pub(in crate::report) along: &'static str,
    /// Named places on the way to the right, in ascending order.
    pub(in crate::report) ticks: Vec<(f64, String)>,
    /// Its lines.
    pub(in crate::report) lines: Vec<Line>,
    /// Marked places: where, and what is said there.
    pub(in crate::report) marks: Vec<(f64, String)>,
    /// Shaded spans: from, to, and what is said there.
    pub(in crate::report) shades: Vec<(f64, f64, String)>,
}

/// A line of a picture.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct Line {
    /// What the legend calls it.
    pub(in crate::report) label: String,
    /// Its points from left to right.
    pub(in crate::report) points: Vec<(f64, f64)>,
    /// From where to where each may be: place, low, high.
    pub(in crate::report) band: Vec<(f64, f64, f64)>,
    /// Whether it is thought rather than measured: dashed, soft, without markers.
    pub(in crate::report) is_thought: bool,
    /// Whether its points are too many for markers.
    pub(in crate::report) is_dense: bool,
    /// Whether it is one figure that does not depend on the way to the right, so that its ends are no measured places.
    pub(in crate::report) is_level: bool,
}

impl Chart {
    /// The picture in words.
    pub(in crate::report) fn alternative(&self) -> String {
        let shown = |line: &Line| {
            let ends = line
                .points
                .iter()
                .fold((f64::MAX, f64::MIN), |(low, high), (_, value)| (low.min(*value), high.max(*value)));
            format!("{} from {} to {}", line.label, figure(ends.0), figure(ends.1))
        };
        let lines: Vec<String> =
            self.lines.iter().filter(|line| !line.points.is_empty()).map(shown).collect();
        let marks = self.marks.iter().map(|(_, label)| format!("; {label}")).collect::<String>();
        format!("{}: {} against {}. {}{marks}.", self.title, self.unit, self.along, lines.join("; "))
    }

    /// The picture as SVG with a title and a role, at a size of its own.
    pub(in crate::report) fn svg(&self) -> Result<String> {
        self.svg_of(WIDE)
    }

    /// The same for a phone.
    pub(in crate::report) fn narrow_svg(&self) -> Result<String> {
        self.svg_of(NARROW)
    }

    fn svg_of(&self, size: (u32, u32)) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg, size).map_err(|fault| LabError::program("the drawing of a picture", fault))?;
        let title = crate::report::escape(&self.alternative());
        let role = format!("<svg role=\"img\" aria-label=\"{title}\" ");
        Ok(svg.replacen("<svg ", &role, 1).trim_end().to_owned())
    }

    fn draw(&self, svg: &mut String, size: (u32, u32)) -> std::result::Result<(), String> {
        let sheet = SVGBackend::with_string(svg, size).into_drawing_area();
        sheet.fill(&PAPER).map_err(told)?;
        let head = self.head(&sheet, size)?;
        let mut plot = self.plot(&sheet, size, head)?;
        for (from, to, label) in &self.shades {
            shade(&mut plot, (*from, *to), self.top(), label)?;
        }
        for (place, line) in self.lines.iter().enumerate() {
            band(&mut plot, line, hue(line, place), (self.span().1 - self.span().0) * CAP)?;
        }
        for (place, line) in self.lines.iter().enumerate() {
            trace(&mut plot, line, hue(line, place), place)?;
        }
        for (place, label) in &self.marks {
            self.mark(&mut plot, *place, label)?;
        }
        drop(plot);
        sheet.present().map_err(told)
    }

    fn plot<'a>(
        &self,
        sheet: &Sheet<'a>,
        size: (u32, u32),
        head: i32,
    ) -> std::result::Result<Plot<'a>, String> {
        let (left, right) = self.span();
        let keys = self.keys(f64::from(size.0) - 90.0);
        let mut plot = ChartBuilder::on(sheet)
            .margin_top(head)
            .margin_right(24)
            .margin_bottom(8)
            .x_label_area_size(46)
            .y_label_area_size(66)
            .build_cartesian_2d(Places { left, right, keys }, 0.0..self.top())
            .map_err(told)?;
        let name = |place: &f64| {
            let near = |tick: &&(f64, String)| (tick.0 - place).abs() < 1e-9;
            self.ticks.iter().find(near).map(|tick| tick.1.clone()).unwrap_or_default()
        };
        plot.configure_mesh()
            .disable_x_mesh()
            .light_line_style(PAPER)
            .bold_line_style(RULE)
            .axis_style(RULE)
            .y_labels(6)
            .x_labels(self.ticks.len().max(2))
            .x_label_formatter(&name)
            .y_label_formatter(&|value| figure(*value))
            .x_desc(self.along)
            .label_style((FAMILY, 13).into_font().color(&SOFT))
            .axis_desc_style((FAMILY, 13).into_font().color(&SOFT))
            .draw()
            .map_err(told)?;
        Ok(plot)
    }

    /// The named places that have room for their names, from left to right, in this many pixels.
    fn keys(&self, pixels: f64) -> Vec<f64> {
        let (left, right) = self.span();
        let room = TICK * (right - left) / pixels;
        let mut keys: Vec<f64> = Vec::new();
        for (place, _) in &self.ticks {
            if keys.last().is_none_or(|last| place - last >= room) {
                keys.push(*place);
            }
        }
        keys
    }

    /// From the first to the last place, with a little room on both sides.
    fn span(&self) -> (f64, f64) {
        let places = self.lines.iter().flat_map(|line| &line.points).map(|point| point.0);
        let places = places.chain(self.shades.iter().map(|shade| shade.0));
        let (low, high) =
            places.fold((f64::MAX, f64::MIN), |(low, high), place| (low.min(place), high.max(place)));
        if low > high {
            return (0.0, 1.0);
        }
        let room = ((high - low) * 0.03).max(0.05);
        (low - room, high + room)
    }

    fn top(&self) -> f64 {
        let values = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
        let bands = self.lines.iter().flat_map(|line| line.band.iter().map(|band| band.2));
        let top = values.chain(bands).filter(|value| value.is_finite()).fold(0.0, f64::max);
        if top > 0.0 { top * 1.12 } else { 1.0 }
    }

    /// Title, unit and legend in as many rows as they need; gives the room that they take.
    fn head(&self, sheet: &Sheet, size: (u32, u32)) -> std::result::Result<i32, String> {
        let title = (FAMILY, 17, FontStyle::Bold).into_font().color(&INK);
        let room = i32::try_from(size.0).unwrap_or(i32::MAX);
        let mut top = 12;
        for row in rows(&self.title, room - 30) {
            write(sheet, &row, (18, top), &title)?;
            top += TITLE_ROW;
        }
        top += 4;
        write(sheet, self.unit, (18, top), &soft(13))?;
        let mut left = 30 + width(self.unit, 13.0);
        for (place, line) in self.lines.iter().enumerate() {
            if left + 28 + width(&line.label, 13.0) > room && left > 18 {
                (left, top) = (18, top + LEGEND_ROW);
            }
            let colour = hue(line, place);
            let y = top + 6;
            let pieces = if line.is_thought { vec![(0, 9), (13, 22)] } else { vec![(0, 22)] };
            for (from, to) in pieces {
                let piece = vec![(left + from, y), (left + to, y)];
                sheet.draw(&PathElement::new(piece, colour.stroke_width(2))).map_err(told)?;
            }
            marker(sheet, line, place, (left + 11, y), colour)?;
            write(sheet, &line.label, (left + 28, top), &soft(13))?;
            left += 46 + width(&line.label, 13.0);
        }
        Ok(top + LEGEND_ROW + HEAD - 10)
    }

    fn mark(&self, plot: &mut Plot, place: f64, label: &str) -> std::result::Result<(), String> {
        let top = self.top();
        let dashes = (0..20).map(|step| {
            let at = |half: f64| top * (f64::from(step) + half) / 20.0;
            PathElement::new(vec![(place, at(0.0)), (place, at(0.55))], INK.stroke_width(2))
        });
        plot.draw_series(dashes).map_err(told)?;
        let (low, high) = self.span();
        let (side, shift) = if place > (low + high) / 2.0 { (HPos::Right, -8) } else { (HPos::Left, 8) };
        let style = (FAMILY, 14, FontStyle::Bold).into_font().color(&INK).pos(Pos::new(side, VPos::Top));
        let text = EmptyElement::at((place, top)) + Text::new(label.to_owned(), (shift, 4), style);
        plot.draw_series([text]).map(drop).map_err(told)
    }
}

fn hue(line: &Line, place: usize) -> RGBColor {
    if line.is_thought { SOFT } else { TARGETS[place % TARGETS.len()] }
}

/// The intervals: a whisker at each measured place, and the area between them where every place has one.
fn band(plot: &mut Plot, line: &Line, colour: RGBColor, cap: f64) -> std::result::Result<(), String> {
    if !line.is_level {
        let whiskers = line.band.iter().flat_map(|(place, low, high)| {
            let bar = PathElement::new(vec![(*place, *low), (*place, *high)], colour.stroke_width(1));
            let end = |value: f64| {
                PathElement::new(vec![(*place - cap, value), (*place + cap, value)], colour.stroke_width(1))
            };
            [bar, end(*low), end(*high)]
        });
        plot.draw_series(whiskers).map_err(told)?;
    }
    if line.band.len() < 2 || line.band.len() < line.points.len() {
        return Ok(());
    }
    let upper = line.band.iter().map(|(place, _, high)| (*place, *high));
    let lower = line.band.iter().rev().map(|(place, low, _)| (*place, *low));
    let outline: Vec<(f64, f64)> = upper.chain(lower).collect();
    plot.draw_series([Polygon::new(outline, colour.mix(0.16))]).map(drop).map_err(told)
}

fn trace(plot: &mut Plot, line: &Line, colour: RGBColor, place: usize) -> std::result::Result<(), String> {
    if line.is_thought {
        let dashes = line.points.chunks(2).filter(|chunk| chunk.len() == 2);
        let dashes = dashes.map(|chunk| PathElement::new(chunk.to_vec(), colour.stroke_width(2)));
        return plot.draw_series(dashes).map(drop).map_err(told);
    }
    plot.draw_series([PathElement::new(line.points.clone(), colour.stroke_width(2))]).map_err(told)?;
    if line.is_dense || line.is_level {
        return Ok(());
    }
    let points = || line.points.iter().copied();
    let drawn = match place % 3 {
        0 => plot.draw_series(points().map(|point| Circle::new(point, 4, colour.filled()))).map(drop),
        1 => plot.draw_series(points().map(|point| TriangleMarker::new(point, 6, colour.filled()))).map(drop),
        _ => plot.draw_series(points().map(|point| Cross::new(point, 4, colour.stroke_width(2)))).map(drop),
    };
    drawn.map_err(told)
}

/// A line's marker in the legend.
fn marker(
    sheet: &Sheet,
    line: &Line,
    place: usize,
    at: (i32, i32),
    colour: RGBColor,
) -> std::result::Result<(), String> {
    if line.is_thought || line.is_dense || line.is_level {
        return Ok(());
    }
    let drawn = match place % 3 {
        0 => sheet.draw(&Circle::new(at, 4, colour.filled())),
        1 => sheet.draw(&TriangleMarker::new(at, 6, colour.filled())),
        _ => sheet.draw(&Cross::new(at, 4, colour.stroke_width(2))),
    };
    drawn.map_err(told)
}

fn shade(plot: &mut Plot, (from, to): (f64, f64), top: f64, label: &str) -> std::result::Result<(), String> {
    plot.draw_series([Rectangle::new([(from, 0.0), (to, top)], SOFT.mix(0.14).filled())]).map_err(told)?;
    let style = soft(12).pos(Pos::new(HPos::Left, VPos::Bottom));
    let text = EmptyElement::at((from, 0.0)) + Text::new(label.to_owned(), (5, -5), style);
    plot.draw_series([text]).map(drop).map_err(told)
}

fn write(sheet: &Sheet, text: &str, at: (i32, i32), style: &TextStyle) -> std::result::Result<(), String> {
    sheet.draw(&Text::new(text.to_owned(), at, style.clone())).map_err(told)
}

fn soft<'a>(size: u32) -> TextStyle<'a> {
    (FAMILY, size).into_font().transform(FontTransform::None).color(&SOFT).into_text_style(&WIDE)
}

/// The words of a title in rows of at most this many pixels.
fn rows(title: &str, room: i32) -> Vec<String> {
    let mut rows: Vec<String> = vec![String::new()];
    for word in title.split(' ') {
        let Some(last) = rows.last_mut() else { break };
        if !last.is_empty() && width(last, 17.0) + width(word, 17.0) + 9 > room {
            rows.push(word.to_owned());
        } else {
            *last = if last.is_empty() { word.to_owned() } else { format!("{last} {word}") };
        }
    }
    rows
}

/// How many pixels a text takes, about.
fn width(text: &str, size: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "a label is some hundred pixels wide")]
    let pixels = (text.chars().take(200).count() as f64 * LETTER * size) as i32;
    pixels
}

/// A figure on an axis: whole, unless it is small.
fn figure(value: f64) -> String {
    if value == 0.0 || value >= 10.0 { whole(value) } else { format!("{}", (value * 100.0).round() / 100.0) }
}

fn told(fault: impl std::fmt::Display) -> String {
    fault.to_string()
}
