//! A picture as PNG, for documents that take no SVG: at twice its size, with fonts that the program carries, so that a
//! machine without any font draws the same. Only pictures of our own come here.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::error::{LabError, Result};

/// Pixels for each unit of the picture.
const SCALE: f32 = 2.0;

/// The picture as the bytes of a PNG file.
pub(super) fn render(svg: &str) -> Result<Vec<u8>> {
    let failed = |said: String| LabError::program("the rendering of a picture", said);
    let tree = Tree::from_str(svg, &options()).map_err(|fault| failed(fault.to_string()))?;
    let size =
        tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed("it has no size".to_owned()))?;
    let mut pixels =
        Pixmap::new(size.width(), size.height()).ok_or_else(|| failed("it has no size".to_owned()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|fault| failed(fault.to_string()))
}

fn options() -> Options<'static> {
    let mut fonts = fontdb::Database::new();
    for font in [notosans::REGULAR_TTF, notosans::BOLD_TTF] {
        fonts.load_font_source(fontdb::Source::Binary(Arc::new(font)));
    }
    fonts.set_sans_serif_family("Noto Sans");
    Options { fontdb: Arc::new(fonts), font_family: "Noto Sans".to_owned(), ..Options::default() }
}
