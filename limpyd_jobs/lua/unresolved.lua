-- Tells which jobs of classes that cannot be had may be taken out of a place, or takes them out: all but those that
-- somebody runs. No transition of a job. Only its class knows where its hash is.
--
-- KEYS[1]  queue: model name and pk
-- ARGV[1]  place: 'waiting', 'delayed' or '_running'
-- ARGV[2]  what to do: 'leave'; 'quarantine' takes them out, and keeps them aside; 'delete' takes them out
-- ARGV[3…] idents
--
-- ident…

--@include clock
--@include quarantine
--@include records

local base, name, choice = KEYS[1], ARGV[1], ARGV[2]
local key = base .. ':' .. name

local function is_there(ident)
  if name == 'waiting' then
    return redis.call('LPOS', key, ident) ~= false
  end
  local at = redis.call('ZSCORE', key, ident)
  return at ~= false and (name == 'delayed' or tonumber(at) < tonumber(score(now())))
end

if choice == 'quarantine' then probe('LLEN', base .. ':_quarantine') end
if choice ~= 'leave' then probe('HLEN', base .. ':_deferrals') end
local found = {}
for i = 3, #ARGV do
  local ident = ARGV[i]
  if is_there(ident) then
    found[#found + 1] = ident
    if choice ~= 'leave' then
      redis.call(name == 'waiting' and 'LREM' or 'ZREM', key, unpack(name == 'waiting' and {0, ident} or {ident}))
      redis.call('HDEL', base .. ':_deferrals', ident)
    end
    if choice == 'quarantine' then set_aside(base, ident) end
  end
end
return found
