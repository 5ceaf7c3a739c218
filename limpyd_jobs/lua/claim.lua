-- verb: claim
-- from: waiting
-- to: running
-- what: takes the first job of the first list that has one, or the given one, and begins a lease
--
-- KEYS     waiting lists, the first to be served first
-- ARGV[1]  token of the claim, never used before
-- ARGV[2]  lease: seconds
-- ARGV[3]  '' to take a job from the lists; or an ident that was taken from the list KEYS[1] by other means
-- ARGV[4…] the job classes known to the caller: class path, job model…
--
-- {'claimed', key, ident, status before, identifier, queue name, queue priority, start, tries, reindex}
-- {'found', key, ident, status, identifier, queue name, queue priority}
--                           off the list, but not waiting, so not claimed
-- {'unknown', key, ident}   of a class that is not among those given: still on the list (unless given)
-- {'gone', key, ident}      has no hash: dropped
-- {'garbage', key, ident}   not an ident: set aside
-- {'broken', key, ident, error}
--                           its hash is none: set aside
-- {'no queue', key, ident}  the given ident comes from the list of no queue, or of a broken one: put back
-- {'nothing'}

--@include claims

local token, lease, ident, classes = ARGV[1], tonumber(ARGV[2]), ARGV[3], pairs_from(4)

if ident == '' then
  return claim_first(KEYS, token, lease, classes)
end

local path = parse_ident(ident)
if not is_sound(string.sub(KEYS[1], 1, -9)) then
  redis.call('LPUSH', KEYS[1], ident)
  return {'no queue', KEYS[1], ident}
elseif not path then
  set_aside(string.sub(KEYS[1], 1, -9), ident)
  return {'garbage', KEYS[1], ident}
elseif not classes[path] then
  return {'unknown', KEYS[1], ident}
end
return claim_safely(KEYS[1], ident, classes[path], token, lease, false)
