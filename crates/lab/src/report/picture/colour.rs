//! The pictures' colours, by what they stand for. A picture has the light ones; a page's style gives each its dark
//! twin by the very value that stands in the picture. Lines differ by their marker too, never by colour alone.

use plotters::style::RGBColor;

/// Paper and ink.
pub(in crate::report) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub(in crate::report) const INK: RGBColor = RGBColor(0x1a, 0x22, 0x30);
/// Text beside the point.
pub(in crate::report) const SOFT: RGBColor = RGBColor(0x5b, 0x66, 0x76);
/// Grid lines.
pub(in crate::report) const RULE: RGBColor = RGBColor(0xdf, 0xe4, 0xea);
/// Lines, in the order in which they are given out.
pub(in crate::report) const TARGETS: [RGBColor; 5] = [
    RGBColor(0x0b, 0x7a, 0x75),
    RGBColor(0xb4, 0x5f, 0x06),
    RGBColor(0x6b, 0x4f, 0xbb),
    RGBColor(0x1f, 0x5f, 0xbf),
    RGBColor(0xb0, 0x3a, 0x6b),
];
