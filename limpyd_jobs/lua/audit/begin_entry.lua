-- verb: begin entry
-- what: writes to the audit that something begins; if too many never ended, the oldest becomes an ordinary one
-- request
--   entry    its token
--   values   JSON: {name: value} of the entry
--   unaudited
--   most     how many entries that have not ended are kept apart
-- reply
--   done

--@include envelope
--@include audit
--@include clock

local values = cjson.decode(request.values)
values.begun, values.last, values.done = now_text(), now_text(), 0

-- Makes an ordinary entry of the one that has been silent for the longest time.
local function end_oldest()
  local all, oldest, oldest_last = redis.call('HGETALL', BEGUN), nil, nil
  for i = 1, #all, 2 do
    local entry = entry_of(all[i + 1]) or {}
    local last = tostring(entry.last or '')
    if all[i] ~= request.entry and (not oldest or last < oldest_last) then oldest, oldest_last = i, last end
  end
  local flat = {}
  for name, value in pairs(entry_of(all[oldest + 1]) or {}) do
    flat[#flat + 1] = name
    flat[#flat + 1] = tostring(value)
  end
  write_entry(cjson.encode(flat))
  redis.call('HDEL', BEGUN, all[oldest])
end

write_to_audit('XLEN', AUDIT)  -- fails if it is something else
write_to_audit('HSET', BEGUN, request.entry, cjson.encode(values))
if redis.call('HLEN', BEGUN) > tonumber(request.most) then end_oldest() end
return answer('done')
