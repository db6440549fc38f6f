-- What is not to be kept, and which relation is made of which (see catalog.rs). `n` a name, `o` an operator, `e` everything, `m` a relation and one that is made of it.
-- `r` a relation, `t` a type, `o` an operator, `f` a function of a user. search_path is pg_catalog; operators are those of it.
WITH RECURSIVE
-- Functions that do not depend on their arguments, rows, catalogs and settings alone. Of users' own, those in C are what a superuser has declared.
unsafe(oid) AS MATERIALIZED (
  SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
  WHERE CASE WHEN p.oid >= 16384 THEN p.provolatile <> 'i' OR l.lanname <> ALL('{c,internal}'::pg_catalog.name[])
      -- Aggregates are declared immutable, whatever their functions are.
      OR EXISTS (SELECT FROM pg_catalog.pg_aggregate a JOIN pg_catalog.pg_proc f ON f.oid = ANY(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn,
          a.aggdeserialfn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::pg_catalog.oid[]) JOIN pg_catalog.pg_language m ON m.oid = f.prolang
        WHERE a.aggfnoid = p.oid AND (f.provolatile <> 'i' OR f.oid >= 16384 AND m.lanname <> ALL('{c,internal}'::pg_catalog.name[])))
    ELSE p.provolatile = 'v' OR p.provolatile = 's' AND p.proname <> ALL('{STABLE}'::pg_catalog.name[])
      OR p.proname ~ '^(pg_|has_|txid_|to_reg|inet_)' OR p.proname ~ '_to_xml' END),
-- What runs when a view, a table with policies or virtual columns is read, or a domain is checked.
trees(kind, oid, class, object, tree) AS MATERIALIZED (
  SELECT 'r', r.ev_class, 'pg_catalog.pg_rewrite'::pg_catalog.regclass, r.oid, r.ev_action::pg_catalog.text FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class k ON k.oid = r.ev_class
    WHERE r.oid >= 16384 AND r.ev_type = '1' AND k.relkind = 'v'
  UNION ALL SELECT 'r', o.polrelid, 'pg_catalog.pg_policy'::pg_catalog.regclass, o.oid, o.polqual::pg_catalog.text FROM pg_catalog.pg_policy o JOIN pg_catalog.pg_class k ON k.oid = o.polrelid
    WHERE k.relrowsecurity AND o.polcmd = ANY('{r,*}'::pg_catalog."char"[])
  UNION ALL SELECT 'r', d.adrelid, 'pg_catalog.pg_attrdef'::pg_catalog.regclass, d.oid, d.adbin::pg_catalog.text FROM pg_catalog.pg_attrdef d JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    WHERE a.attgenerated = 'v'
  UNION ALL SELECT 't', c.contypid, 'pg_catalog.pg_constraint'::pg_catalog.regclass, c.oid, c.conbin::pg_catalog.text FROM pg_catalog.pg_constraint c WHERE c.contypid >= 16384),
-- Objects of users in them: what is built in is in the trees alone.
used(kind, oid, used_kind, used) AS MATERIALIZED (
  SELECT DISTINCT t.kind, t.oid, CASE d.refclassid WHEN 'pg_catalog.pg_class'::pg_catalog.regclass THEN 'r' WHEN 'pg_catalog.pg_type'::pg_catalog.regclass THEN 't'
    WHEN 'pg_catalog.pg_operator'::pg_catalog.regclass THEN 'o' ELSE 'f' END, d.refobjid
  FROM trees t JOIN pg_catalog.pg_depend d ON d.classid = t.class AND d.objid = t.object
  WHERE d.refobjid >= 16384 AND d.refobjid <> t.oid
    AND d.refclassid = ANY('{pg_catalog.pg_class,pg_catalog.pg_type,pg_catalog.pg_operator,pg_catalog.pg_proc}'::pg_catalog.regclass[]::pg_catalog.oid[])),
uses(kind, oid, used_kind, used) AS MATERIALIZED (
  SELECT * FROM used
  UNION ALL SELECT 'r', i.inhparent, 'r', i.inhrelid FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class k ON k.oid = i.inhparent WHERE k.relkind = ANY('{r,p,f}'::pg_catalog."char"[])
  UNION ALL SELECT DISTINCT 'r', a.attrelid, 't', a.atttypid FROM pg_catalog.pg_attribute a WHERE a.atttypid >= 16384 AND a.attrelid >= 16384 AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL SELECT 't', t.oid, 't', x.oid FROM pg_catalog.pg_type t, LATERAL pg_catalog.unnest(ARRAY[t.typbasetype, t.typelem]) x(oid) WHERE t.oid >= 16384 AND x.oid >= 16384
  UNION ALL SELECT 't', t.oid, 'r', t.typrelid FROM pg_catalog.pg_type t WHERE t.typrelid >= 16384
  UNION ALL SELECT 't', t.oid, 't', r.rngsubtype FROM pg_catalog.pg_range r, LATERAL pg_catalog.unnest(ARRAY[r.rngtypid, r.rngmultitypid]) t(oid) WHERE r.rngsubtype >= 16384),
-- Those that read a text may make a time of it.
casts(oid, context, target) AS MATERIALIZED (
  SELECT c.oid, c.castcontext, c.casttarget FROM pg_catalog.pg_cast c JOIN pg_catalog.pg_type t ON t.oid = c.casttarget WHERE c.oid >= 16384
    AND (c.castfunc >= 16384 AND c.castfunc = ANY(SELECT u.oid FROM unsafe u) OR c.castmethod = 'i' AND (t.oid >= 16384 OR t.typcategory = ANY('{D,R}'::pg_catalog."char"[])))),
bad(kind, oid) AS (
  (SELECT 'r', k.oid FROM pg_catalog.pg_class k WHERE k.oid >= 16384 AND (k.relpersistence <> 'p' AND k.relkind = ANY('{r,p,v,m,f,S}'::pg_catalog."char"[]) OR k.relkind = ANY('{f,S,m}'::pg_catalog."char"[])
    OR k.relkind = 'r' AND k.relam <> ALL(SELECT a.oid FROM pg_catalog.pg_am a WHERE a.amname = 'heap'))
  -- Built-in relations show the server, the session, or what decoding does not; of SQLValueFunction, the first nine are times; what reads texts as
  -- values may know 'now', as those of times, and of all that is made of them: these types' do not.
  UNION ALL SELECT t.kind, t.oid FROM trees t WHERE pg_catalog.strpos(t.tree, ':hasForUpdate true') > 0 OR pg_catalog.strpos(t.tree, '{TABLESAMPLECLAUSE ') > 0 OR t.tree ~ '[{]SQLVALUEFUNCTION :op [0-8] '
    OR pg_catalog.strpos(t.tree, '{TABLEFUNC ') > 0 OR pg_catalog.strpos(t.tree, '{JSONEXPR ') > 0
    OR pg_catalog.strpos(t.tree, '{COERCEVIAIO ') > 0 AND EXISTS (SELECT FROM pg_catalog.regexp_matches(t.tree, ':resulttype ([0-9]+) ', 'g') m(found)
      WHERE m.found[1]::pg_catalog.oid <> ALL('{16,17,18,19,20,21,23,25,26,114,142,650,700,701,774,790,829,869,1003,1005,1007,1009,1015,1016,1021,1022,1042,1043,1186,1231,1560,1562,1700,2950,2951,3614,3615,3802,3807,3904,3906,3926,4072,4451,4532,4536}'::pg_catalog.oid[]))
    OR EXISTS (SELECT FROM pg_catalog.regexp_matches(t.tree, ':relid ([0-9]+) ', 'g') m(found) WHERE m.found[1]::pg_catalog.oid < 16384 AND m.found[1] <> '0')
    OR EXISTS (SELECT FROM pg_catalog.regexp_matches(t.tree, ':(funcid|aggfnoid|winfnoid) ([0-9]+) ', 'g') m(found)
      WHERE m.found[2]::pg_catalog.oid >= 16384 OR m.found[2]::pg_catalog.oid = ANY(SELECT u.oid FROM unsafe u))
  UNION ALL SELECT u.kind, u.oid FROM used u WHERE u.used_kind = 'f'
  UNION ALL SELECT 'o', o.oid FROM pg_catalog.pg_operator o WHERE o.oid >= 16384 AND o.oprcode::pg_catalog.oid = ANY(SELECT u.oid FROM unsafe u)
  UNION ALL SELECT 't', t.oid FROM pg_catalog.pg_type t, LATERAL pg_catalog.unnest(ARRAY[t.typinput, t.typoutput, t.typreceive, t.typsend]) x(oid)
    WHERE t.oid >= 16384 AND x.oid::pg_catalog.oid >= 16384 AND x.oid::pg_catalog.oid = ANY(SELECT u.oid FROM unsafe u)
  UNION ALL SELECT 't', c.target FROM casts c WHERE c.context <> 'i' AND c.target >= 16384)
  UNION SELECT u.kind, u.oid FROM bad b JOIN uses u ON u.used_kind = b.kind AND u.used = b.oid)
SELECT 'n', k.relname::pg_catalog.text, NULL::pg_catalog.text FROM bad b JOIN pg_catalog.pg_class k ON k.oid = b.oid WHERE b.kind = 'r'
UNION ALL SELECT 'n', t.typname::pg_catalog.text, NULL FROM bad b JOIN pg_catalog.pg_type t ON t.oid = b.oid WHERE b.kind = 't'
-- Types that a text may take for the built-in ones of that name, or by which it may make a time of a value in the notation of a column.
UNION ALL SELECT 'n', t.typname::pg_catalog.text, NULL FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_class k ON k.oid = t.typrelid
  WHERE t.oid >= 16384 AND (k.oid IS NULL OR k.relkind = 'c') AND (t.typtype = 'd' AND t.typcategory = ANY('{A,C,D,R}'::pg_catalog."char"[]) OR t.typtype = ANY('{r,m}'::pg_catalog."char"[])
    OR EXISTS (SELECT FROM pg_catalog.pg_type e WHERE e.oid = t.typelem AND e.oid >= 16384 AND e.typcategory = ANY('{D,R}'::pg_catalog."char"[]))
    OR EXISTS (SELECT FROM pg_catalog.pg_type b WHERE b.oid < 16384 AND b.typname = t.typname)
    OR t.typname = ANY('{bigint,boolean,character,dec,decimal,double,float,int,integer,national,nchar,real,smallint,varchar}'::pg_catalog.name[]))
-- Functions that a text calls without showing that it calls a user's: by the notation of a column, or by a name that is a built-in's or a keyword.
UNION ALL SELECT DISTINCT 'n', p.proname::pg_catalog.text, NULL FROM pg_catalog.pg_proc p WHERE p.oid >= 16384 AND p.prokind <> 'p' AND p.oid = ANY(SELECT u.oid FROM unsafe u)
  AND p.prorettype <> ALL('{pg_catalog.trigger,pg_catalog.event_trigger}'::pg_catalog.regtype[]::pg_catalog.oid[])
UNION ALL SELECT 'o', o.oprname::pg_catalog.text, NULL FROM bad b JOIN pg_catalog.pg_operator o ON o.oid = b.oid WHERE b.kind = 'o'
-- What no text shows: implicit casts, casts to types with several names, the order of values.
UNION ALL SELECT 'e', '', NULL FROM casts c WHERE c.context = 'i' OR c.target < 16384
UNION ALL SELECT 'e', '', NULL FROM pg_catalog.pg_amop a JOIN pg_catalog.pg_operator o ON o.oid = a.amopopr JOIN pg_catalog.pg_am m ON m.oid = a.amopmethod
  WHERE m.amname = ANY('{btree,hash}'::pg_catalog.name[]) AND o.oid >= 16384 AND o.oprcode::pg_catalog.oid = ANY(SELECT u.oid FROM unsafe u)
UNION ALL SELECT 'e', '', NULL FROM pg_catalog.pg_amproc a JOIN pg_catalog.pg_opfamily f ON f.oid = a.amprocfamily JOIN pg_catalog.pg_am m ON m.oid = f.opfmethod
  WHERE m.amname = ANY('{btree,hash}'::pg_catalog.name[]) AND a.amproc::pg_catalog.oid >= 16384 AND a.amproc::pg_catalog.oid = ANY(SELECT u.oid FROM unsafe u)
UNION ALL SELECT DISTINCT 'm', k.relname::pg_catalog.text, r.relname::pg_catalog.text FROM uses u JOIN pg_catalog.pg_class k ON k.oid = u.used JOIN pg_catalog.pg_class r ON r.oid = u.oid
  WHERE u.kind = 'r' AND u.used_kind = 'r'
UNION ALL SELECT 'end', '', NULL
