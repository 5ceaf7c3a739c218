-- verb: end entry
-- what: writes to the audit what was done in the end. The steps noted themselves how many they did: a caller that is
--       interrupted does not know of its last step
-- request
--   entry   the token of an entry that was begun; or none
--   audit   the entry, without the moment when it was begun
--   unaudited
-- reply
--   done

--@include envelope
--@include audit

local values, begun = cjson.decode(request.audit), request.entry and entry_of(redis.pcall('HGET', BEGUN, request.entry))
if begun then
  for i = 1, #values, 2 do
    if values[i] == 'done' then values[i + 1] = string.format('%d', math.max(tonumber(values[i + 1]) or 0, begun.done)) end
  end
  values[#values + 1] = 'begun'
  values[#values + 1] = tostring(begun.begun)
end
write_entry(cjson.encode(values))
if begun then redis.call('HDEL', BEGUN, request.entry) end
return answer('done')
