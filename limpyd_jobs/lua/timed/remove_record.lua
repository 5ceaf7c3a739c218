-- verb: remove record
-- what: a timed record is deleted, if it still is as it was read
-- KEYS[1]  the leases of timed records
-- request
--   model, pk
--   expected   JSON: {field: value, or '' for none}, or none
--   owner      of the lease, or none
--   due_field  the field that says when a record is due, or none
-- reply
--   done
--   gone      there is no such record
--   changed   one of the expected fields has another value. Only the lease is ended, unless the record is still due when
--             it was

--@include leases

local model, pk = model_of(request.model), request.pk

if is_gone(model, pk) then
  return answer('gone')
elseif not is_as_expected(model, pk, request.expected) then
  end_lease_of_changed(KEYS[1], model, pk, request.owner, request.expected, request.due_field)
  return answer('changed')
end
delete_record(model, pk)
return answer('done')
