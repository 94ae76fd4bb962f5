//! The tokens of an image from its width and height, by the tile rule of one provider and the area
//! rule of another.
//!
//! Owns these rules, and as much of four file formats as is needed to read a size. Never fetches a
//! URL, never decodes pixels, and never counts an image's base64 as text.
//!
//! The tile rule (<https://platform.openai.com/docs/guides/images-vision>): fit the image into
//! 2,048 × 2,048, then reduce its shorter side to 768. Each tile of 512 × 512 then counts 170
//! tokens, and the image 85 more. At low detail it is 85 in total.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// An image whose size can't be read. Six tiles are what a large photograph has.
pub const UNREADABLE: u32 = 1_105;
/// An image at low detail, and the part of any image that does not depend on its size.
const BASE: u32 = 85;
const TILE: u32 = 170;
/// Pixels per token, for an image that is counted by its area.
const AREA_PIXELS: f64 = 750.0;
/// The longer side of such an image after the provider has reduced it.
const AREA_EDGE: f64 = 1568.0;
/// The most tokens of such an image.
const AREA_MAX: u32 = 1_600;

/// The size of a PNG, GIF or WebP stands within this many bytes.
const HEADER: usize = 64;
/// The size of a JPEG stands behind its metadata. It is searched within this many bytes.
const JPEG_HEADER: usize = 512 * 1024;

/// Padding is not required, because only the beginning of the text is decoded.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The tokens of an image. `data_or_url` is its URL as the client sent it. A base64 `data:` URL is
/// measured (PNG, JPEG, GIF, WebP), and anything else counts as 1,105 tokens. `detail` is the field
/// of that name. Everything except `low` counts in full, because that is the more expensive
/// reading.
#[must_use]
pub fn image_tokens(data_or_url: &str, detail: Option<&str>) -> u32 {
    if detail == Some("low") {
        return BASE;
    }
    let size = payload(data_or_url).and_then(measure);
    size.and_then(|(width, height)| tiles(width, height))
        .map_or(UNREADABLE, |tiles| {
            BASE.saturating_add(TILE.saturating_mul(tiles))
        })
}

/// The tokens of an image that is counted by its area, from its base64. Each 750 pixels of the
/// image fitted into 1,568 × 1,568 count as one token, up to 1,600
/// (<https://docs.claude.com/en/docs/build-with-claude/vision>). An image that can't be read counts
/// as 1,600.
#[must_use]
pub fn area_tokens(base64: &str) -> u32 {
    measure(base64.as_bytes())
        .and_then(|(width, height)| area(width, height))
        .unwrap_or(AREA_MAX)
}

/// The tokens of a size. `None` for an empty image.
fn area(width: u32, height: u32) -> Option<u32> {
    if width == 0 || height == 0 {
        return None;
    }
    let (width, height) = (f64::from(width), f64::from(height));
    let fit = (AREA_EDGE / width.max(height)).min(1.0);
    let tokens = (width * fit * height * fit / AREA_PIXELS).ceil();
    Some((tokens as u32).clamp(1, AREA_MAX))
}

/// The base64 text of a `data:` URL.
fn payload(url: &str) -> Option<&[u8]> {
    let scheme = url.get(..5)?;
    if !scheme.eq_ignore_ascii_case("data:") {
        return None;
    }
    // The media type is short. A comma further in does not end it.
    let head = url
        .as_bytes()
        .iter()
        .take(256)
        .position(|byte| *byte == b',')?;
    let kind = url.get(5..head)?;
    let encoded = kind
        .rsplit(';')
        .next()?
        .trim()
        .eq_ignore_ascii_case("base64");
    encoded.then(|| url.as_bytes().get(head + 1..)).flatten()
}

/// The first `most` decoded bytes, or fewer if the text ends earlier.
fn front(payload: &[u8], most: usize) -> Option<Vec<u8>> {
    let symbols = most.div_ceil(3) * 4;
    BASE64
        .decode(payload.get(..symbols).unwrap_or(payload))
        .ok()
}

/// The width and the height in pixels.
fn measure(payload: &[u8]) -> Option<(u32, u32)> {
    let header = front(payload, HEADER)?;
    if header.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Some((big32(&header, 16)?, big32(&header, 20)?));
    }
    if header.starts_with(b"GIF87a") || header.starts_with(b"GIF89a") {
        return Some((little16(&header, 6)?, little16(&header, 8)?));
    }
    if header.starts_with(b"RIFF") && header.get(8..12)? == b"WEBP" {
        return webp(&header);
    }
    if header.starts_with(b"\xff\xd8") {
        // Most files need little. Only those with much metadata are decoded further.
        return [4 * 1024, JPEG_HEADER]
            .into_iter()
            .find_map(|most| jpeg(&front(payload, most)?));
    }
    None
}

fn webp(header: &[u8]) -> Option<(u32, u32)> {
    match header.get(12..16)? {
        b"VP8 " if header.get(23..26)? == b"\x9d\x01\x2a" => Some((
            little16(header, 26)? & 0x3fff,
            little16(header, 28)? & 0x3fff,
        )),
        b"VP8L" if header.get(20) == Some(&0x2f) => {
            let bits = little16(header, 21)? | (little16(header, 23)? << 16);
            Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
        }
        b"VP8X" => Some((little24(header, 24)? + 1, little24(header, 27)? + 1)),
        _ => None,
    }
}

/// Walks through the segments of a JPEG up to the one that starts a frame.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            // Fill bytes, and markers without a body.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big16(bytes, at + 7)?, big16(bytes, at + 5)?));
            }
            // The image's data or its end came first.
            0xd9 | 0xda => return None,
            _ => at += 2 + (big16(bytes, at + 2)? as usize).max(2),
        }
    }
}

/// The tiles of an image after the provider has reduced it. `None` for an empty image.
fn tiles(width: u32, height: u32) -> Option<u32> {
    if width == 0 || height == 0 {
        return None;
    }
    let (width, height) = (f64::from(width), f64::from(height));
    let fit = (2048.0 / width.max(height)).min(1.0);
    let (width, height) = (width * fit, height * fit);
    let fit = (768.0 / width.min(height)).min(1.0);
    // Rounding to the nearest pixel keeps an exact multiple of 512 from gaining a tile.
    let across = |side: f64| ((side * fit).round() / 512.0).ceil().max(1.0) as u32;
    Some(across(width) * across(height))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn big32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

fn big16(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u16::from_be_bytes).map(u32::from)
}

fn little16(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u16::from_le_bytes).map(u32::from)
}

fn little24(bytes: &[u8], at: usize) -> Option<u32> {
    let [low, middle, high] = array(bytes, at)?;
    Some(u32::from_le_bytes([low, middle, high, 0]))
}

#[cfg(test)]
mod tests;
