-- Leases: of timed records, which a process handles once they are due. A sorted set has the pks, by the end of the lease;
-- each record names the owner.

--@include clock
--@include records

local function is_leased(key, pk)
  local ends = redis.call('ZSCORE', key, pk)
  return ends and tonumber(ends) > now() / 1000000
end

-- Ends the lease of a record, if it belongs to the owner, and makes other changes to its fields.
local function end_lease(key, model, pk, owner, changes)
  changes = changes or {}
  if key and owner and redis.call('HGET', hash_key(model, pk), 'leased_by') == owner then
    redis.call('ZREM', key, pk)
    changes.leased_by = false
  end
  if next(changes) then update(model, pk, changes) end
end

-- The first record that is due at some time and that a function accepts: they are looked at one by one, the earliest
-- first. The pks to pass over are given as JSON, a list, or not given.
local function first_of_due(key, moment, skipped, accepts)
  local offset, size, passed_over = 0, 100, {}
  for _, pk in ipairs(cjson.decode(skipped or '[]')) do passed_over[pk] = true end
  repeat
    local found = redis.call('ZRANGEBYSCORE', key, '-inf', moment, 'LIMIT', offset, size)
    for _, pk in ipairs(found) do
      if not passed_over[pk] and accepts(pk) then return pk end
    end
    offset = offset + size
  until #found < size
end

-- Whether a record is as the caller read it.
local function is_as_expected(model, pk, expected)
  for field, value in pairs(cjson.decode(expected or '{}')) do
    if (redis.call('HGET', hash_key(model, pk), field) or '') ~= value then return false end
  end
  return true
end

-- Ends the lease of a record that is not as its owner expected, unless it is still due when it was: its owner still
-- handles it.
local function end_lease_of_changed(key, model, pk, owner, expected, field)
  local at = cjson.decode(expected)[field]
  if not at or redis.call('HGET', hash_key(model, pk), field) ~= at then
    end_lease(key, model, pk, owner)
  end
end
