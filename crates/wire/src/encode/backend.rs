//! What a server says. Each function appends one whole message.

use super::Message;
use crate::backend::Status;
use crate::startup::Version;
use crate::tag::backend as tag;

/// One column of a result set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// The column's name.
    pub name: &'a str,
    /// The type's number in `pg_type`, such as 25 for text.
    pub type_oid: u32,
    /// The type's size in bytes, -1 for a varying one.
    pub type_bytes: i16,
}

impl<'a> Column<'a> {
    /// A column of type text.
    #[must_use]
    pub const fn text(name: &'a str) -> Self {
        Self { name, type_oid: 25, type_bytes: -1 }
    }
}

/// AuthenticationOk.
pub fn authentication_ok(out: &mut Vec<u8>) {
    Message::tagged(out, tag::AUTHENTICATION).number(0).end();
}

/// AuthenticationCleartextPassword.
pub fn authentication_cleartext(out: &mut Vec<u8>) {
    Message::tagged(out, tag::AUTHENTICATION).number(3).end();
}

/// AuthenticationMD5Password.
pub fn authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
    Message::tagged(out, tag::AUTHENTICATION).number(5).bytes(&salt).end();
}

/// AuthenticationSASL: the mechanisms offered, the favourite first.
pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    let message = Message::tagged(out, tag::AUTHENTICATION).number(10);
    mechanisms.iter().fold(message, |message, name| message.text(name.as_bytes())).byte(0).end();
}

/// AuthenticationSASLContinue.
pub fn sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    Message::tagged(out, tag::AUTHENTICATION).number(11).bytes(data).end();
}

/// AuthenticationSASLFinal.
pub fn sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    Message::tagged(out, tag::AUTHENTICATION).number(12).bytes(data).end();
}

/// ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    Message::tagged(out, tag::PARAMETER_STATUS).text(name).text(value).end();
}

/// BackendKeyData. Protocol 3.0 wants a secret of 4 bytes, 3.2 one of 4 to 256.
pub fn key_data(out: &mut Vec<u8>, process_id: u32, secret: &[u8]) {
    Message::tagged(out, tag::KEY_DATA).number(process_id).bytes(secret).end();
}

/// ReadyForQuery.
#[inline]
pub fn ready(out: &mut Vec<u8>, status: Status) {
    Message::tagged(out, tag::READY).byte(status.byte()).end();
}

/// ErrorResponse: severity (translated and not), SQLSTATE and message.
pub fn error(out: &mut Vec<u8>, severity: &str, sqlstate: &str, message: &str) {
    report(out, tag::ERROR, severity, sqlstate, message);
}

/// [`error`] with a detail, which clients show on a line of its own.
pub fn error_with_detail(out: &mut Vec<u8>, severity: &str, sqlstate: &str, message: &str, detail: &str) {
    let fields = [(b'S', severity), (b'V', severity), (b'C', sqlstate), (b'M', message), (b'D', detail)];
    report_fields(out, tag::ERROR, &fields);
}

/// ErrorResponse for a prepared statement whose result has changed, as PostgreSQL's `RevalidateCachedQuery` says it:
/// by that routine drivers tell it from others of its SQLSTATE, and prepare anew.
pub fn changed_result(out: &mut Vec<u8>) {
    let fields = [
        (b'S', "ERROR"),
        (b'V', "ERROR"),
        (b'C', crate::sqlstate::FEATURE_NOT_SUPPORTED),
        (b'M', "cached plan must not change result type"),
        (b'R', "RevalidateCachedQuery"),
    ];
    report_fields(out, tag::ERROR, &fields);
}

/// ErrorResponse with the fields of the one that has this body, but for its message.
pub fn error_with_message(out: &mut Vec<u8>, body: &[u8], message: &[u8]) {
    crate::error::parse(body)
        .fields()
        .map(|(kind, value)| (kind, if kind == b'M' { message } else { value }))
        .fold(Message::tagged(out, tag::ERROR), |report, (kind, value)| report.byte(kind).text(value))
        .byte(0)
        .end();
}

/// ErrorResponse with the fields of this body, but for its position in the text of the query.
pub fn error_without_position(out: &mut Vec<u8>, body: &[u8]) {
    crate::error::parse(body)
        .fields()
        .filter(|(kind, _)| *kind != b'P')
        .fold(Message::tagged(out, tag::ERROR), |report, (kind, value)| report.byte(kind).text(value))
        .byte(0)
        .end();
}

/// NoticeResponse, with the fields of [`error`].
pub fn notice(out: &mut Vec<u8>, severity: &str, sqlstate: &str, message: &str) {
    report(out, tag::NOTICE, severity, sqlstate, message);
}

/// NoticeResponse of severity NOTICE, with a detail (PostgreSQL chapter 55.8, field D).
pub fn notice_with_detail(out: &mut Vec<u8>, message: &str, detail: &str) {
    let severity = "NOTICE";
    let fields = [(b'S', severity), (b'V', severity), (b'C', "00000"), (b'M', message), (b'D', detail)];
    report_fields(out, tag::NOTICE, &fields);
}

fn report(out: &mut Vec<u8>, tag: u8, severity: &str, sqlstate: &str, message: &str) {
    report_fields(out, tag, &[(b'S', severity), (b'V', severity), (b'C', sqlstate), (b'M', message)]);
}

fn report_fields(out: &mut Vec<u8>, tag: u8, fields: &[(u8, &str)]) {
    fields
        .iter()
        .fold(Message::tagged(out, tag), |report, (kind, value)| report.byte(*kind).text(value.as_bytes()))
        .byte(0)
        .end();
}

/// RowDescription: columns of no table, values as text.
pub fn row_description(out: &mut Vec<u8>, columns: &[Column<'_>]) {
    row_description_in(out, columns, &|_| 0);
}

/// RowDescription: columns of no table, each with the format of its values (0 text, 1 binary).
pub fn row_description_in(out: &mut Vec<u8>, columns: &[Column<'_>], format_of: &dyn Fn(usize) -> u16) {
    let message = Message::tagged(out, tag::ROW_DESCRIPTION).count(columns.len());
    columns
        .iter()
        .enumerate()
        .fold(message, |message, (index, column)| {
            message
                .text(column.name.as_bytes())
                .number(0) // table
                .short(0) // column of the table
                .number(column.type_oid)
                .short(column.type_bytes.cast_unsigned())
                .number(u32::MAX) // no type modifier
                .short(format_of(index))
        })
        .end();
}

/// DataRow; `None` is NULL.
pub fn data_row<'a>(out: &mut Vec<u8>, values: impl IntoIterator<Item = Option<&'a [u8]>>) {
    let count_at = out.len() + crate::frame::HEADER_BYTES;
    let mut count = 0;
    let message = values.into_iter().fold(Message::tagged(out, tag::DATA_ROW).count(0), |message, value| {
        count += 1;
        message.value(value)
    });
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    message.out[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    message.end();
}

/// CommandComplete with its tag, such as `SELECT 1`.
pub fn command_complete(out: &mut Vec<u8>, tag_text: &str) {
    Message::tagged(out, tag::COMMAND_COMPLETE).text(tag_text.as_bytes()).end();
}

/// EmptyQueryResponse.
pub fn empty_query(out: &mut Vec<u8>) {
    Message::tagged(out, tag::EMPTY_QUERY).end();
}

/// ParseComplete.
#[inline]
pub fn parse_complete(out: &mut Vec<u8>) {
    Message::tagged(out, tag::PARSE_COMPLETE).end();
}

/// BindComplete.
#[inline]
pub fn bind_complete(out: &mut Vec<u8>) {
    Message::tagged(out, tag::BIND_COMPLETE).end();
}

/// CloseComplete.
#[inline]
pub fn close_complete(out: &mut Vec<u8>) {
    Message::tagged(out, tag::CLOSE_COMPLETE).end();
}

/// NoData.
pub fn no_data(out: &mut Vec<u8>) {
    Message::tagged(out, tag::NO_DATA).end();
}

/// ParameterDescription: the types of a statement's parameters.
pub fn parameter_description(out: &mut Vec<u8>, type_oids: &[u32]) {
    let message = Message::tagged(out, tag::PARAMETER_DESCRIPTION).count(type_oids.len());
    type_oids.iter().fold(message, |message, oid| message.number(*oid)).end();
}

/// PortalSuspended.
pub fn portal_suspended(out: &mut Vec<u8>) {
    Message::tagged(out, tag::PORTAL_SUSPENDED).end();
}

/// NegotiateProtocolVersion: the newest minor version of protocol 3 this side will speak on the connection,
/// and the `_pq_.` parameters it does not know. The documentation speaks of the minor version, but server and
/// libpq both mean the whole number, major included, so that is what is written.
pub fn negotiate(out: &mut Vec<u8>, newest_minor: u16, unrecognised: &[&[u8]]) {
    let count = u32::try_from(unrecognised.len()).unwrap_or(u32::MAX);
    let version = Version { major: 3, minor: newest_minor };
    let message = Message::tagged(out, tag::NEGOTIATE).number(version.number()).number(count);
    unrecognised.iter().fold(message, |message, name| message.text(name)).end();
}

/// CopyInResponse: overall format (0 text, 1 binary), which each of `columns` columns has as well.
pub fn copy_in(out: &mut Vec<u8>, format: u8, columns: u16) {
    copy_response(out, tag::COPY_IN, format, columns);
}

/// CopyOutResponse, as [`copy_in`].
pub fn copy_out(out: &mut Vec<u8>, format: u8, columns: u16) {
    copy_response(out, tag::COPY_OUT, format, columns);
}

fn copy_response(out: &mut Vec<u8>, tag: u8, format: u8, columns: u16) {
    let message = Message::tagged(out, tag).byte(format).short(columns);
    (0..columns).fold(message, |message, _| message.short(u16::from(format))).end();
}

/// NotificationResponse.
pub fn notification(out: &mut Vec<u8>, process_id: u32, channel: &[u8], payload: &[u8]) {
    Message::tagged(out, tag::NOTIFICATION).number(process_id).text(channel).text(payload).end();
}
