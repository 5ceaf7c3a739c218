-- verb: begin entry
-- what: writes to the audit that something begins; of the entries that never ended, the oldest become ordinary ones
-- request
--   entry       its token
--   unaudited
--   told        JSON: {name: value} of the entry
--   most        how many entries that have not ended are kept apart
-- reply
--   done

--@include envelope
--@include audit
--@include clock

local told = cjson.decode(request.told)
told.begun, told.last, told.done = now_text(), now_text(), 0

-- Makes an ordinary entry of the one that has been silent for the longest time.
local function end_oldest()
  local all, oldest, oldest_last = redis.call('HGETALL', BEGUN), nil, nil
  for i = 1, #all, 2 do
    local entry = entry_of(all[i + 1]) or {}
    local last = tostring(entry.last or '')
    if all[i] ~= request.entry and (not oldest or last < oldest_last) then oldest, oldest_last = i, last end
  end
  local values = {}
  for name, value in pairs(entry_of(all[oldest + 1]) or {}) do
    values[#values + 1] = name
    values[#values + 1] = tostring(value)
  end
  write_entry(cjson.encode(values))
  redis.call('HDEL', BEGUN, all[oldest])
end

write_to_audit('XLEN', AUDIT)  -- fails if it is something else
write_to_audit('HSET', BEGUN, request.entry, cjson.encode(told))
while redis.call('HLEN', BEGUN) > tonumber(request.most) do end_oldest() end
return answer('done')
