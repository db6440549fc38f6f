-- What the catalog says about the names in a text, for hot standbys (see routing_catalog.rs). `f` a function, `r` a relation, `t` a type, `o` an operator, `c` a cast.
WITH RECURSIVE
-- Built-in functions (below 16384) that a standby must not answer, and others that are volatile. A function that returns a trigger is not called by a text.
functions(oid, name, is_own, is_callable, is_readable, is_bad) AS MATERIALIZED (
  SELECT p.oid, p.proname::pg_catalog.text, p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid,
    p.prokind OPERATOR(pg_catalog.<>) 'p' AND p.prorettype OPERATOR(pg_catalog.<>) ALL(ARRAY['pg_catalog.trigger', 'pg_catalog.event_trigger']::pg_catalog.regtype[]::pg_catalog.oid[])
      AND (p.prokind OPERATOR(pg_catalog.=) 'a' OR 'pg_catalog.internal'::pg_catalog.regtype::pg_catalog.oid OPERATOR(pg_catalog.<>) ALL(p.proargtypes::pg_catalog.oid[])),
    p.provolatile OPERATOR(pg_catalog.<>) 'v' AND p.prosqlbody IS NULL AND l.lanname OPERATOR(pg_catalog.<>) ALL(ARRAY['internal', 'c']::pg_catalog.name[]),
    p.provolatile OPERATOR(pg_catalog.=) 'v' AND p.prokind OPERATOR(pg_catalog.<>) 'a' OR p.oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid
      AND (p.proname::pg_catalog.text OPERATOR(pg_catalog.=) ANY({PRIMARY_ONLY} OPERATOR(pg_catalog.||) '{version}'::pg_catalog.text[])
        OR p.proname OPERATOR(pg_catalog.^@) 'pg_' AND p.proname::pg_catalog.text OPERATOR(pg_catalog.<>) ALL({REPLICATED}))
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang),
-- Functions whose volatility is not believed: their code may ask for what is another thing on each server, or run other code.
words(oid, word) AS MATERIALIZED (
  SELECT DISTINCT p.oid, w.word FROM functions f JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) f.oid,
    LATERAL pg_catalog.regexp_split_to_table(pg_catalog.lower(p.prosrc COLLATE "pg_catalog"."C"), '[^a-z0-9_]+') w(word)
  WHERE f.is_own AND f.is_readable),
objects(class, oid, name) AS MATERIALIZED (
  SELECT 'f', oid, pg_catalog.lower(name COLLATE "pg_catalog"."C") FROM functions WHERE is_own AND is_callable
  UNION ALL SELECT 'r', oid, pg_catalog.lower(relname::pg_catalog.text COLLATE "pg_catalog"."C") FROM pg_catalog.pg_class
    WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND relkind OPERATOR(pg_catalog.=) ANY(ARRAY['r', 'v', 'm', 'f', 'p', 'S', 'c']::pg_catalog."char"[])
  UNION ALL SELECT 't', t.oid, pg_catalog.lower(t.typname::pg_catalog.text COLLATE "pg_catalog"."C") FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.oid OPERATOR(pg_catalog.=) t.typelem
    LEFT JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) t.typrelid OR k.oid OPERATOR(pg_catalog.=) e.typrelid WHERE t.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND (k.oid IS NULL OR k.relkind OPERATOR(pg_catalog.=) 'c')),
-- What runs when a view or a table with policies is read, a domain is checked or a function with a parsed body is called; what is built in leaves no other trace there.
trees(class, oid, tree) AS MATERIALIZED (
  SELECT 'r', r.ev_class, r.ev_action::pg_catalog.text FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) r.ev_class
    WHERE r.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND r.ev_type OPERATOR(pg_catalog.=) '1' AND k.relkind OPERATOR(pg_catalog.=) 'v'
  UNION ALL SELECT 'r', o.polrelid, o.polqual::pg_catalog.text FROM pg_catalog.pg_policy o JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) o.polrelid
    WHERE k.relrowsecurity AND o.polcmd OPERATOR(pg_catalog.=) ANY(ARRAY['r', '*']::pg_catalog."char"[])
  UNION ALL SELECT 't', contypid, conbin::pg_catalog.text FROM pg_catalog.pg_constraint WHERE contypid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
  UNION ALL SELECT 'f', oid, pg_catalog.concat(prosqlbody, proargdefaults) FROM pg_catalog.pg_proc WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND (prosqlbody IS NOT NULL OR proargdefaults IS NOT NULL)),
depends(classid, objid, class, oid) AS MATERIALIZED (
  SELECT d.classid, d.objid, CASE WHEN d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass THEN 'f' WHEN d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass THEN 'r'
    WHEN d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_type'::pg_catalog.regclass THEN 't' ELSE 'o' END, d.refobjid FROM pg_catalog.pg_depend d
  WHERE d.refobjid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
    AND d.classid OPERATOR(pg_catalog.=) ANY(ARRAY['pg_catalog.pg_rewrite', 'pg_catalog.pg_policy', 'pg_catalog.pg_constraint', 'pg_catalog.pg_proc', 'pg_catalog.pg_type', 'pg_catalog.pg_class']::pg_catalog.regclass[]::pg_catalog.oid[])
    AND d.refclassid OPERATOR(pg_catalog.=) ANY(ARRAY['pg_catalog.pg_proc', 'pg_catalog.pg_class', 'pg_catalog.pg_type', 'pg_catalog.pg_operator']::pg_catalog.regclass[]::pg_catalog.oid[])),
-- Which object uses which.
uses(class, oid, used_class, used) AS MATERIALIZED (
  SELECT t.class, t.oid, CASE WHEN m.found[1] OPERATOR(pg_catalog.=) 'relid' THEN 'r' ELSE 'f' END, m.found[2]::pg_catalog.oid
    FROM trees t, LATERAL pg_catalog.regexp_matches(t.tree, ':(funcid|aggfnoid|winfnoid|tsmhandler|relid) ([0-9]+) ', 'g') m(found)
  UNION ALL SELECT 'r', r.ev_class, d.class, d.oid FROM depends d JOIN pg_catalog.pg_rewrite r ON r.oid OPERATOR(pg_catalog.=) d.objid JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) r.ev_class
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND r.ev_type OPERATOR(pg_catalog.=) '1' AND k.relkind OPERATOR(pg_catalog.=) 'v' AND d.oid OPERATOR(pg_catalog.<>) r.ev_class
  UNION ALL SELECT 'r', o.polrelid, d.class, d.oid FROM depends d JOIN pg_catalog.pg_policy o ON o.oid OPERATOR(pg_catalog.=) d.objid JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) o.polrelid
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_policy'::pg_catalog.regclass AND k.relrowsecurity AND o.polcmd OPERATOR(pg_catalog.=) ANY(ARRAY['r', '*']::pg_catalog."char"[]) AND d.oid OPERATOR(pg_catalog.<>) o.polrelid
  UNION ALL SELECT 't', c.contypid, d.class, d.oid FROM depends d JOIN pg_catalog.pg_constraint c ON c.oid OPERATOR(pg_catalog.=) d.objid
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_constraint'::pg_catalog.regclass AND c.contypid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
  -- Support functions are for the planner.
  UNION ALL SELECT 'f', d.objid, d.class, d.oid FROM depends d JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) d.objid
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.oid OPERATOR(pg_catalog.<>) p.prosupport::pg_catalog.oid
  UNION ALL SELECT 't', d.objid, d.class, d.oid FROM depends d WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_type'::pg_catalog.regclass AND d.class OPERATOR(pg_catalog.<>) 'f'
  UNION ALL SELECT 'r', d.objid, 't', d.oid FROM depends d JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) d.objid
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass AND d.class OPERATOR(pg_catalog.=) 't'
  UNION ALL SELECT 't', oid, 't', typbasetype FROM pg_catalog.pg_type WHERE typtype OPERATOR(pg_catalog.=) 'd'
  UNION ALL SELECT 't', oid, 'r', typrelid FROM pg_catalog.pg_type WHERE typrelid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
  UNION ALL SELECT 'r', inhparent, 'r', inhrelid FROM pg_catalog.pg_inherits
  UNION ALL SELECT 'f', a.aggfnoid::pg_catalog.oid, 'f', x.oid::pg_catalog.oid FROM pg_catalog.pg_aggregate a, LATERAL pg_catalog.unnest(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn,
    a.aggserialfn, a.aggdeserialfn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]) x(oid) WHERE a.aggfnoid::pg_catalog.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
  UNION ALL SELECT 'f', p.oid, 'f', g.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_proc g ON g.prosrc OPERATOR(pg_catalog.=) p.prosrc AND g.prolang OPERATOR(pg_catalog.=) p.prolang AND g.oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid
    JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang WHERE p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND l.lanname OPERATOR(pg_catalog.=) 'internal'
  UNION ALL SELECT 'o', oid, 'f', oprcode::pg_catalog.oid FROM pg_catalog.pg_operator WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
  UNION ALL SELECT 'c', oid, 'f', castfunc FROM pg_catalog.pg_cast WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
  UNION ALL SELECT 't', casttarget, 'c', oid FROM pg_catalog.pg_cast WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND castcontext OPERATOR(pg_catalog.<>) 'i'
  UNION ALL SELECT 'f', w.oid, o.class, o.oid FROM words w JOIN objects o ON o.name OPERATOR(pg_catalog.=) w.word WHERE o.oid OPERATOR(pg_catalog.<>) w.oid
  UNION ALL SELECT 'f', p.oid, 'o', o.oid FROM pg_catalog.pg_operator o JOIN functions g ON g.oid OPERATOR(pg_catalog.=) o.oprcode::pg_catalog.oid AND (g.is_bad OR g.is_readable) JOIN functions f ON f.is_own AND f.is_readable JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) f.oid
    WHERE o.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND pg_catalog.strpos(p.prosrc, o.oprname::pg_catalog.text) OPERATOR(pg_catalog.>) 0
  UNION ALL SELECT 'f', p.oid, o.class, o.oid FROM objects o JOIN functions f ON f.is_own AND f.is_readable JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) f.oid
    WHERE o.name OPERATOR(pg_catalog.~) '[^a-z0-9_]' AND pg_catalog.strpos(pg_catalog.lower(p.prosrc COLLATE "pg_catalog"."C"), o.name) OPERATOR(pg_catalog.>) 0),
bad(class, oid) AS (
  (SELECT 'f', oid FROM functions WHERE is_bad
  UNION ALL SELECT 'f', oid FROM words WHERE word OPERATOR(pg_catalog.=) ANY({PRIMARY_ONLY} OPERATOR(pg_catalog.||) '{execute}'::pg_catalog.text[])
    OR word OPERATOR(pg_catalog.^@) 'pg_' AND word OPERATOR(pg_catalog.<>) ALL({REPLICATED})
  UNION ALL SELECT 'f', f.oid FROM functions f JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) f.oid WHERE f.is_own AND f.is_readable AND pg_catalog.strpos(pg_catalog.lower(p.prosrc COLLATE "pg_catalog"."C"), 'u&"') OPERATOR(pg_catalog.>) 0
  UNION ALL SELECT class, oid FROM trees WHERE pg_catalog.strpos(tree, ':hasForUpdate true') OPERATOR(pg_catalog.>) 0
  UNION ALL SELECT 'r', oid FROM pg_catalog.pg_class WHERE relpersistence OPERATOR(pg_catalog.<>) 'p' AND relkind OPERATOR(pg_catalog.<>) 'i' OR relkind OPERATOR(pg_catalog.=) ANY(ARRAY['f', 'S']::pg_catalog."char"[])
    OR oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid AND relname OPERATOR(pg_catalog.^@) 'pg_' AND relname::pg_catalog.text OPERATOR(pg_catalog.<>) ALL({REPLICATED}))
  UNION SELECT u.class, u.oid FROM bad b JOIN uses u ON u.used_class OPERATOR(pg_catalog.=) b.class AND u.used OPERATOR(pg_catalog.=) b.oid),
found(kind, name) AS (
  SELECT 'p', o.name FROM bad b JOIN objects o ON o.class OPERATOR(pg_catalog.=) b.class AND o.oid OPERATOR(pg_catalog.=) b.oid
  UNION SELECT 'p', pg_catalog.lower(a.typname::pg_catalog.text COLLATE "pg_catalog"."C") FROM bad b JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) b.oid JOIN pg_catalog.pg_type a ON a.oid OPERATOR(pg_catalog.=) t.oid OR a.oid OPERATOR(pg_catalog.=) t.typarray
    WHERE b.class OPERATOR(pg_catalog.=) 't' AND t.oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid
  UNION SELECT 'o', o.oprname::pg_catalog.text FROM bad b JOIN pg_catalog.pg_operator o ON o.oid OPERATOR(pg_catalog.=) b.oid WHERE b.class OPERATOR(pg_catalog.=) 'o'
  -- What no text shows: implicit casts, the order of values, casts to types with several names, and to those that to_json() looks for.
  UNION SELECT 'a', '' FROM bad b JOIN pg_catalog.pg_cast c ON c.oid OPERATOR(pg_catalog.=) b.oid WHERE b.class OPERATOR(pg_catalog.=) 'c' AND (c.castcontext OPERATOR(pg_catalog.=) 'i' OR c.casttarget OPERATOR(pg_catalog.=) ANY(ARRAY['pg_catalog.bool', 'pg_catalog.int2', 'pg_catalog.int4', 'pg_catalog.int8',
    'pg_catalog.float4', 'pg_catalog.float8', 'pg_catalog.numeric', 'pg_catalog.bpchar', 'pg_catalog.varchar', 'pg_catalog.time', 'pg_catalog.timetz', 'pg_catalog.timestamp', 'pg_catalog.timestamptz', 'pg_catalog.interval', 'pg_catalog.bit', 'pg_catalog.varbit', 'pg_catalog.json', 'pg_catalog.jsonb']::pg_catalog.regtype[]::pg_catalog.oid[]))
  UNION SELECT 'a', '' FROM bad b JOIN pg_catalog.pg_amproc a ON a.amproc::pg_catalog.oid OPERATOR(pg_catalog.=) b.oid JOIN pg_catalog.pg_opfamily o ON o.oid OPERATOR(pg_catalog.=) a.amprocfamily JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) o.opfmethod
    WHERE b.class OPERATOR(pg_catalog.=) 'f' AND b.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND (m.amname OPERATOR(pg_catalog.=) 'btree' AND a.amprocnum OPERATOR(pg_catalog.=) ANY('{1,3}'::pg_catalog.int2[]) OR m.amname OPERATOR(pg_catalog.=) 'hash' AND a.amprocnum OPERATOR(pg_catalog.<) 3)
  UNION SELECT 'a', '' FROM bad b JOIN pg_catalog.pg_amop a ON a.amopopr OPERATOR(pg_catalog.=) b.oid JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) a.amopmethod
    WHERE b.class OPERATOR(pg_catalog.=) 'o' AND m.amname OPERATOR(pg_catalog.=) ANY(ARRAY['btree', 'hash']::pg_catalog.name[])
  UNION SELECT 'r', f.name FROM functions f WHERE f.is_own AND f.is_callable
    AND NOT EXISTS (SELECT FROM functions g WHERE NOT g.is_own AND g.name OPERATOR(pg_catalog.=) f.name)
    AND NOT EXISTS (SELECT FROM bad b JOIN objects o ON o.class OPERATOR(pg_catalog.=) 'f' AND o.oid OPERATOR(pg_catalog.=) b.oid WHERE b.class OPERATOR(pg_catalog.=) 'f' AND o.name OPERATOR(pg_catalog.=) pg_catalog.lower(f.name COLLATE "pg_catalog"."C"))),
encoded(kind, name, part) AS MATERIALIZED (
  SELECT kind, CASE WHEN name COLLATE "pg_catalog"."C" OPERATOR(pg_catalog.~) '^[A-Za-z0-9_]+$' THEN name ELSE pg_catalog.concat('=', pg_catalog.encode(pg_catalog.convert_to(name, 'UTF8'), 'hex')) END, pg_catalog.row_number() OVER (PARTITION BY kind) OPERATOR(pg_catalog./) 250 FROM found),
sizes(kind, is_too_much) AS (SELECT kind, pg_catalog.sum(pg_catalog.length(name) OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.>) CASE WHEN kind OPERATOR(pg_catalog.=) 'r' THEN {READER_BYTES} ELSE {BYTES} END FROM encoded GROUP BY kind)
SELECT kind, pg_catalog.string_agg(name, ',') FROM encoded WHERE kind OPERATOR(pg_catalog.<>) ALL(SELECT kind FROM sizes WHERE is_too_much) GROUP BY kind, part
UNION ALL SELECT 'too many ' OPERATOR(pg_catalog.||) kind, '' FROM sizes WHERE is_too_much
UNION ALL SELECT 'end', ''
