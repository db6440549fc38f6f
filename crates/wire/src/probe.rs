//! What must hold for any bytes a peer may send, as functions that panic when it does not.
//! Called by the fuzz targets and, over seeds and their mutations, by an ordinary test; never by the pooler.
