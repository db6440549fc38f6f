//! What a client says. Each function appends one whole message, or the first packet of a connection.

use super::Message;
use crate::startup::{CANCEL_CODE, GSS_CODE, SSL_CODE, Version};
use crate::tag::frontend as tag;

/// StartupMessage with its parameters in order.
pub fn startup(out: &mut Vec<u8>, version: Version, parameters: &[(&[u8], &[u8])]) {
    let message = Message::untagged(out).number(version.number());
    parameters.iter().fold(message, |message, (name, value)| message.text(name).text(value)).byte(0).end();
}

/// SSLRequest.
pub fn ssl_request(out: &mut Vec<u8>) {
    Message::untagged(out).number(SSL_CODE).end();
}

/// GSSENCRequest.
pub fn gss_request(out: &mut Vec<u8>) {
    Message::untagged(out).number(GSS_CODE).end();
}

/// CancelRequest with what the key data gave.
pub fn cancel_request(out: &mut Vec<u8>, process_id: u32, secret: &[u8]) {
    Message::untagged(out).number(CANCEL_CODE).number(process_id).bytes(secret).end();
}

/// Query.
pub fn query(out: &mut Vec<u8>, text: &[u8]) {
    Message::tagged(out, tag::QUERY).text(text).end();
}

/// Parse: a statement's name, its text, and the types of its first parameters (0: for the server to find).
pub fn parse(out: &mut Vec<u8>, name: &[u8], query: &[u8], type_oids: &[u32]) {
    let message = Message::tagged(out, tag::PARSE).text(name).text(query).count(type_oids.len());
    type_oids.iter().fold(message, |message, oid| message.number(*oid)).end();
}

/// Bind with values and results all as text; `None` is NULL.
pub fn bind_simple(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], values: &[Option<&[u8]>]) {
    let message = Message::tagged(out, tag::BIND).text(portal).text(statement).count(0).count(values.len());
    values.iter().fold(message, |message, value| message.value(*value)).count(0).end();
}

/// Describe a statement (`kind` is `b'S'`) or a portal (`b'P'`).
pub fn describe(out: &mut Vec<u8>, kind: u8, name: &[u8]) {
    target(out, tag::DESCRIBE, kind, name);
}

/// Execute a portal, up to `row_limit` rows; 0: all.
pub fn execute(out: &mut Vec<u8>, portal: &[u8], row_limit: u32) {
    Message::tagged(out, tag::EXECUTE).text(portal).number(row_limit).end();
}

/// Close a statement (`kind` is `b'S'`) or a portal (`b'P'`).
pub fn close(out: &mut Vec<u8>, kind: u8, name: &[u8]) {
    target(out, tag::CLOSE, kind, name);
}

/// Describe or Close, whichever `tag` says.
#[inline]
pub(crate) fn target(out: &mut Vec<u8>, tag: u8, kind: u8, name: &[u8]) {
    Message::tagged(out, tag).byte(kind).text(name).end();
}

/// Sync.
#[inline]
pub fn sync(out: &mut Vec<u8>) {
    Message::tagged(out, tag::SYNC).end();
}

/// Flush.
pub fn flush(out: &mut Vec<u8>) {
    Message::tagged(out, tag::FLUSH).end();
}

/// Terminate.
pub fn terminate(out: &mut Vec<u8>) {
    Message::tagged(out, tag::TERMINATE).end();
}

/// PasswordMessage: a password, or its MD5 answer, without a NUL.
pub fn password(out: &mut Vec<u8>, password: &[u8]) {
    Message::tagged(out, tag::PASSWORD).text(password).end();
}

/// SASLInitialResponse: the mechanism chosen and its first data.
pub fn sasl_initial(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) {
    Message::tagged(out, tag::PASSWORD).text(mechanism.as_bytes()).value(Some(data)).end();
}

/// SASLResponse.
pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
    Message::tagged(out, tag::PASSWORD).bytes(data).end();
}

/// CopyFail with the reason.
pub fn copy_fail(out: &mut Vec<u8>, reason: &[u8]) {
    Message::tagged(out, tag::COPY_FAIL).text(reason).end();
}
