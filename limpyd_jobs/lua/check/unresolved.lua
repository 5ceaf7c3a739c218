-- verb: unresolved
-- what: tells which jobs of classes that cannot be imported are not run, so that they may be taken out of a place; or does so
-- KEYS[1]  queue: model name and pk
-- request
--   idents
--   kind     'waiting', '_parked', 'delayed' or '_running'
--   choice   'leave'; 'quarantine' takes them out, and keeps them aside; 'delete' takes them out
-- reply
--   done   {idents}
--
-- Only the class knows where the hash of a job is.

--@include clock
--@include quarantine
--@include records

local base, name, choice = KEYS[1], request.kind, request.choice
local key = base .. ':' .. name

local function is_there(ident)
  if name == 'waiting' then
    return redis.call('LPOS', key, ident) ~= false
  end
  local at = redis.call('ZSCORE', key, ident)
  return at ~= false and (name ~= '_running' or tonumber(at) < tonumber(score(now())))
end

if choice == 'quarantine' then probe('LLEN', base .. ':_quarantine') end
if choice ~= 'leave' then probe('HLEN', base .. ':_deferrals') end
local found = {}
for _, ident in ipairs(cjson.decode(request.idents)) do
  if is_there(ident) then
    found[#found + 1] = ident
    if choice ~= 'leave' then
      redis.call(name == 'waiting' and 'LREM' or 'ZREM', key, unpack(name == 'waiting' and {0, ident} or {ident}))
      redis.call('HDEL', base .. ':_deferrals', ident)
    end
    if choice == 'quarantine' then set_aside(base, ident) end
  end
end
return answer('done', {idents = found})
