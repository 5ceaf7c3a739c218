-- verb: orphan keys
-- what: looks for keys of records that do not exist, or of a wrong type, or deletes them
-- request
--   model, repair
--   keys   what to look at, as JSON: [key, pk or '' for a key of no record, the type it must have or '']…
-- reply
--   done   {found: [key, problem, type]…}

--@include records

local model, repairs = model_of(request.model), request.repair
local found = {}

local function report(key, problem, kind)
  found[#found + 1] = {key, problem, kind}
  if repairs then redis.call('UNLINK', key) end
end

for _, row in ipairs(cjson.decode(request.keys)) do
  local key, pk, expected = unpack(row)
  local kind = redis.call('TYPE', key).ok
  local is_orphan = kind ~= 'none' and pk ~= '' and redis.call('TYPE', hash_key(model, pk)).ok ~= 'hash'
  if is_orphan and redis.call('PTTL', key) < 0 then  -- others go by themselves
    report(key, 'no owner', kind)
  elseif not is_orphan and kind ~= 'none' and expected ~= '' and kind ~= expected then
    report(key, 'wrong type', kind)
  end
end
return answer('done', {found = found})
