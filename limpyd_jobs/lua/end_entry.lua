-- verb: end entry
-- what: writes to the audit what was done in the end
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
  values[#values + 1] = 'begun'
  values[#values + 1] = tostring(begun.begun)
end
write_entry(cjson.encode(values))
if begun then redis.call('HDEL', BEGUN, request.entry) end
return answer('done')
