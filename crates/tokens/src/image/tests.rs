//! Tests of `image`.

use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend([8, 6, 0, 0, 0]);
    bytes.extend([7; 500]);
    bytes
}

fn gif(width: u16, height: u16) -> Vec<u8> {
    [
        b"GIF89a".as_slice(),
        &width.to_le_bytes(),
        &height.to_le_bytes(),
        &[0; 20],
    ]
    .concat()
}

fn jpeg_with(metadata: usize, width: u16, height: u16) -> Vec<u8> {
    let mut bytes = b"\xff\xd8".to_vec();
    let mut left = metadata;
    while left > 0 {
        let body = left.min(60_000);
        bytes.extend([0xff, 0xe1]);
        bytes.extend(u16::try_from(body + 2).unwrap().to_be_bytes());
        bytes.extend(std::iter::repeat_n(0xd9, body));
        left -= body;
    }
    bytes.extend([0xff, 0xff, 0xc2, 0, 17, 8]);
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([3; 30]);
    bytes
}

fn webp_of(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [
        b"RIFF\0\0\0\0WEBP".as_slice(),
        kind,
        &[0; 4],
        body,
        &[0; 20],
    ]
    .concat()
}

fn url(kind: &str, bytes: &[u8]) -> String {
    format!("data:image/{kind};base64,{}", STANDARD.encode(bytes))
}

#[test]
fn sizes_of_every_format() {
    let lossless = 1_u32 << 28 | (599 << 14) | 799;
    for (kind, bytes) in [
        ("png", png(800, 600)),
        ("gif", gif(800, 600)),
        ("jpeg", jpeg_with(0, 800, 600)),
        ("jpeg", jpeg_with(3_900, 800, 600)),
        ("jpeg", jpeg_with(200_000, 800, 600)),
        (
            "webp",
            webp_of(b"VP8 ", &[0, 0, 0, 0x9d, 1, 0x2a, 0x20, 0x43, 0x58, 0x82]),
        ),
        (
            "webp",
            webp_of(
                b"VP8L",
                &[&[0x2f], lossless.to_le_bytes().as_slice()].concat(),
            ),
        ),
        (
            "webp",
            webp_of(b"VP8X", &[0, 0, 0, 0, 0x1f, 3, 0, 0x57, 2, 0]),
        ),
    ] {
        let url = url(kind, &bytes);
        assert_eq!(measure(payload(&url).unwrap()), Some((800, 600)), "{kind}");
        assert_eq!(image_tokens(&url, None), 85 + 4 * 170, "{kind}");
    }
}

#[test]
fn tiles_by_the_published_rule() {
    for (width, height, tokens) in [
        (1, 1, 255),
        (512, 512, 255),
        (513, 512, 425),
        (1024, 1024, 765),
        (2048, 4096, 1105),
        (4096, 8192, 1105),
        (768, 1024, 765),
        (100_000, 1, 85 + 4 * 170),
        (u32::MAX, u32::MAX, 765),
    ] {
        assert_eq!(
            image_tokens(&url("png", &png(width, height)), Some("high")),
            tokens,
            "{width} × {height}"
        );
    }
}

#[test]
fn areas_by_the_published_rule() {
    for (width, height, tokens) in [
        (200, 200, 54),
        (1000, 1000, 1334),
        (1092, 1092, 1590),
        (1, 1, 1),
        (4000, 3000, 1600),
        (15_680, 100, 21),
        (0, 10, 1600),
    ] {
        let base64 = STANDARD.encode(png(width, height));
        assert_eq!(area_tokens(&base64), tokens, "{width} × {height}");
    }
    assert_eq!(area_tokens(""), 1600);
}

#[test]
fn what_can_not_be_read() {
    let cut = url("png", &png(800, 600));
    for text in [
        "",
        "data:",
        "data:image/png;base64,",
        "data:image/png;base64,!!!!",
        "data:image/png,iVBORw0KGgo=",
        "https://example.com/cat.png",
        "é:é,é",
        &cut[..50],
        &url("png", &png(0, 600)),
        &url("jpeg", &[0xff, 0xd8, 0xff, 0xd9]),
        &url("jpeg", &jpeg_with(JPEG_HEADER + 10, 8, 6)),
        &url("webp", &webp_of(b"VP8 ", &[0; 10])),
        &url("svg+xml", b"<svg width='10' height='10'/>"),
    ] {
        assert_eq!(
            image_tokens(text, None),
            UNREADABLE,
            "{}",
            text.get(..40).unwrap_or(text)
        );
        assert_eq!(image_tokens(text, Some("low")), 85);
    }
}

proptest! {
    #[test]
    fn any_text_has_a_bounded_size(text: String, bytes: Vec<u8>) {
        for text in [text, url("png", &bytes)] {
            let tokens = image_tokens(&text, None);
            prop_assert!((85..=85 + 8 * 170).contains(&tokens));
        }
    }

    #[test]
    fn any_png_is_symmetric_and_bounded(width in 1_u32.., height in 1_u32..) {
        let tokens = image_tokens(&url("png", &png(width, height)), None);
        prop_assert_eq!(tokens, image_tokens(&url("png", &png(height, width)), None));
        prop_assert!((255..=85 + 8 * 170).contains(&tokens));
    }
}
